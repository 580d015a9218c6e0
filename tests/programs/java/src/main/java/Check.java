// SPDX-License-Identifier: Apache-2.0

import com.sun.management.HotSpotDiagnosticMXBean;
import com.sun.management.OperatingSystemMXBean;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.StandardWatchEventKinds;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;

/**
 * Checks what the virtual machine needs of the system: {@code java Check [NAME...]}. Prints a line
 * for each check and ends with 0 when all passed. It passes on Linux; a guest must do the same.
 *
 * <p>{@code java Check gc SECONDS THREADS} allocates from many threads for a while and reports the
 * longest time in which a thread that only sleeps did not run.
 */
public final class Check {
  private interface Body {
    void run() throws Exception;
  }

  private static final Map<String, Body> CHECKS = new LinkedHashMap<>();

  static {
    CHECKS.put("machine", Check::machine);
    CHECKS.put("memory", Check::memory);
    CHECKS.put("compiler", Check::compiler);
    CHECKS.put("implicitNullChecks", Check::implicitNullChecks);
    CHECKS.put("stackOverflow", Check::stackOverflow);
    CHECKS.put("outOfMemory", Check::outOfMemory);
    CHECKS.put("manyThreads", Check::manyThreads);
    CHECKS.put("parking", Check::parking);
    CHECKS.put("garbage", () -> garbage(2, 4));
    CHECKS.put("files", Check::files);
    CHECKS.put("watch", Check::watch);
    CHECKS.put("selector", Check::selector);
    CHECKS.put("http", Check::http);
    CHECKS.put("certificates", Check::certificates);
    CHECKS.put("process", Check::process);
    CHECKS.put("threadDump", Check::threadDump);
  }

  private Check() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 3 && arguments[0].equals("gc")) {
      garbage(Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]));
      return;
    }
    var wanted = List.of(arguments);
    int failed = 0;
    for (var check : CHECKS.entrySet()) {
      if (!wanted.isEmpty() && !wanted.contains(check.getKey())) {
        continue;
      }
      var began = System.nanoTime();
      try {
        check.getValue().run();
        var took = (System.nanoTime() - began) / 1_000_000;
        System.out.println("ok " + check.getKey() + " (" + took + " ms)");
      } catch (Throwable error) {
        failed++;
        System.out.println("FAILED " + check.getKey());
        error.printStackTrace(System.out);
      }
    }
    System.out.println(failed == 0 ? "java: ok" : "java: " + failed + " failed");
    System.exit(failed == 0 ? 0 : 1);
  }

  private static void require(boolean holds, Object what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  /** What the machine says of itself, and what the JVM takes for the limits of its container. */
  private static void machine() throws Exception {
    var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    require(system.getAvailableProcessors() == Runtime.getRuntime().availableProcessors(), system);
    long memory = system.getTotalMemorySize();
    require(memory > 0 && system.getFreeMemorySize() < memory, memory);
    long heap = Runtime.getRuntime().maxMemory();
    require(heap <= memory, heap + " of " + memory);
    require(system.getCommittedVirtualMemorySize() > 0, "no virtual memory");
    require(system.getProcessCpuTime() > 0, "no processor time");
    require(system.getProcessCpuLoad() <= 1, system.getProcessCpuLoad());
    require(ProcessHandle.current().info().command().orElseThrow().endsWith("/java"), "command");
    require(!InetAddress.getLocalHost().getHostName().isEmpty(), "host name");
    require(InetAddress.getByName("localhost").isLoopbackAddress(), "localhost");
    var threads = ManagementFactory.getThreadMXBean();
    require(threads.getCurrentThreadCpuTime() > 0, "no time of a thread");
  }

  /** Reserved and committed memory, mapped memory, and memory that comes from outside the heap. */
  private static void memory() throws Exception {
    var parts = new ArrayList<byte[]>();
    for (int i = 0; i < 64; i++) {
      parts.add(new byte[1 << 20]);
    }
    var direct = ByteBuffer.allocateDirect(16 << 20);
    for (int at = 0; at < direct.capacity(); at += 4096) {
      direct.put(at, (byte) at);
    }
    var maps = Files.readAllLines(Path.of("/proc/self/maps"));
    require(maps.stream().anyMatch(line -> line.endsWith("libjvm.so")), "libjvm.so is not in maps");
    require(parts.size() == 64, parts);
  }

  /** Code that runs long enough for both compilers, then takes the branch it was not made for. */
  private static void compiler() {
    long sum = 0;
    for (int round = 0; round < 200; round++) {
      sum += LongStream.range(0, 1000).map(i -> i ^ (i << 3)).sum();
      sum += mixed(round < 199 ? Integer.valueOf(round) : "the last");
    }
    require(
        sum == 200 * LongStream.range(0, 1000).map(i -> i ^ (i << 3)).sum() + 198 * 199 / 2 + 8,
        sum);
    var parallel = IntStream.range(0, 200_000).parallel().filter(Check::prime).count();
    require(parallel == 17984, parallel);
  }

  private static int mixed(Object value) {
    return value instanceof Integer number ? number : ((String) value).length();
  }

  private static boolean prime(int number) {
    if (number < 2) {
      return false;
    }
    for (int divisor = 2; (long) divisor * divisor <= number; divisor++) {
      if (number % divisor == 0) {
        return false;
      }
    }
    return true;
  }

  private static final class Box {
    int value;
    final int[] far = new int[1000];
  }

  /** A null pointer is a fault that becomes an exception, in compiled code too. */
  private static void implicitNullChecks() {
    var boxes = new Box[] {new Box(), null};
    int caught = 0;
    for (int i = 0; i < 200_000; i++) {
      try {
        boxes[i % 1000 == 999 ? 1 : 0].value++;
      } catch (NullPointerException expected) {
        caught++;
      }
    }
    require(caught == 200 && boxes[0].value == 199_800, caught);
    try {
      require(boxes[0].value / (boxes[0].far[1]) == 0, "divided");
      throw new AssertionError("no exception");
    } catch (ArithmeticException expected) {
      caught++;
    }
  }

  /** The guard pages of stacks, in the first thread and in another, more than once. */
  private static void stackOverflow() throws InterruptedException {
    for (int i = 0; i < 3; i++) {
      require(overflows(), "no overflow");
    }
    var seen = new AtomicInteger();
    var thread = new Thread(null, () -> seen.addAndGet(overflows() ? 1 : 0), "small", 256 << 10);
    thread.start();
    thread.join();
    require(seen.get() == 1, "no overflow in a thread");
  }

  private static boolean overflows() {
    try {
      return down(0) < 0;
    } catch (StackOverflowError expected) {
      return true;
    }
  }

  private static int down(int depth) {
    return down(depth + 1) + 1;
  }

  private static void outOfMemory() {
    var kept = new ArrayList<long[]>();
    try {
      while (kept.size() < 1 << 20) {
        kept.add(new long[4 << 20]);
      }
    } catch (OutOfMemoryError expected) {
      int parts = kept.size();
      kept.clear();
      require(parts > 0, "no memory at all");
      require(new byte[1 << 20].length == 1 << 20, "nothing after it");
      return;
    }
    throw new AssertionError("memory without end");
  }

  private static void manyThreads() throws InterruptedException {
    var started = new CountDownLatch(200);
    var go = new CountDownLatch(1);
    var sum = new AtomicLong();
    var threads = new ArrayList<Thread>();
    for (int i = 0; i < 200; i++) {
      int number = i;
      var thread =
          new Thread(
              () -> {
                started.countDown();
                try {
                  go.await();
                } catch (InterruptedException error) {
                  return;
                }
                sum.addAndGet(number);
              });
      thread.start();
      threads.add(thread);
    }
    started.await();
    System.gc(); // stops all of them
    go.countDown();
    for (var thread : threads) {
      thread.join();
    }
    require(sum.get() == 19900, sum);
  }

  /** Monitors, conditions with time-outs, interruption. */
  private static void parking() throws Exception {
    var pool = Executors.newFixedThreadPool(4);
    var scheduled = Executors.newScheduledThreadPool(1);
    var began = System.nanoTime();
    var future = scheduled.schedule(() -> 42, 20, TimeUnit.MILLISECONDS);
    require(future.get() == 42 && System.nanoTime() - began >= 19_000_000, "too early");
    var counter = new int[1];
    var tasks = Stream.generate(() -> (Runnable) () -> add(counter)).limit(4).map(pool::submit);
    for (var task : tasks.toList()) {
      task.get();
    }
    require(counter[0] == 80_000, counter[0]);
    var sleeper = new Thread(() -> sleep(60_000));
    sleeper.start();
    sleeper.interrupt();
    sleeper.join(10_000);
    require(!sleeper.isAlive(), "not interrupted");
    pool.shutdown();
    scheduled.shutdown();
  }

  private static void add(int[] counter) {
    for (int i = 0; i < 20_000; i++) {
      synchronized (counter) {
        counter[0]++;
      }
    }
  }

  private static void sleep(long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  private record Tree(Tree left, Tree right, byte[] content) {
    static Tree of(int depth) {
      var content = new byte[ThreadLocalRandom.current().nextInt(64)];
      return depth == 0
          ? new Tree(null, null, content)
          : new Tree(of(depth - 1), of(depth - 1), null);
    }

    int size() {
      return 1 + (left == null ? 0 : left.size() + right.size());
    }
  }

  /** Collections of all kinds while threads allocate; the longest pause is printed. */
  private static void garbage(int seconds, int threads) throws InterruptedException {
    long end = System.nanoTime() + seconds * 1_000_000_000L;
    var trees = new AtomicLong();
    var kept = new ConcurrentHashMap<Integer, Tree>();
    var wrong = new AtomicInteger();
    var all = new ArrayList<Thread>();
    for (int i = 0; i < threads; i++) {
      boolean first = i == 0;
      all.add(
          new Thread(
              () -> {
                while (System.nanoTime() < end) {
                  var tree = Tree.of(10);
                  kept.put(ThreadLocalRandom.current().nextInt(64), tree);
                  if (tree.size() != 2047) {
                    wrong.incrementAndGet();
                  }
                  if (trees.incrementAndGet() % 100 == 0 && first) {
                    System.gc();
                  }
                }
              }));
    }
    var longest = new AtomicLong();
    var sleeper = new Thread(() -> longest.set(longestPause(end)));
    all.add(sleeper);
    all.forEach(Thread::start);
    for (var thread : all) {
      thread.join();
    }
    var collectors = new ArrayList<String>();
    for (var bean : ManagementFactory.getGarbageCollectorMXBeans()) {
      collectors.add(bean.getName() + " " + bean.getCollectionCount());
    }
    require(wrong.get() == 0, wrong + " wrong trees");
    System.out.printf(
        "%d trees, longest pause %d ms, %s%n", trees.get(), longest.get() / 1_000_000, collectors);
  }

  private static long longestPause(long end) {
    long longest = 0;
    for (long last = System.nanoTime(); last < end; ) {
      sleep(1);
      long now = System.nanoTime();
      longest = Math.max(longest, now - last);
      last = now;
    }
    return longest;
  }

  private static void files() throws IOException {
    var folder = Files.createTempDirectory("check");
    var file = folder.resolve("a");
    Files.writeString(file, "hello");
    try (var channel = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      var mapped = channel.map(FileChannel.MapMode.READ_WRITE, 0, 8192);
      mapped.put(4096, (byte) 'x');
      mapped.force();
      require(channel.size() == 8192, channel.size());
      try (var lock = channel.tryLock()) {
        require(lock != null && lock.isValid(), "no lock");
      }
      var copy = folder.resolve("b");
      try (var target =
          FileChannel.open(copy, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
        require(channel.transferTo(0, 8192, target) == 8192, "not all transferred");
      }
      require(Files.mismatch(file, copy) == -1, "the copy differs");
    }
    Files.move(file, folder.resolve("c"));
    Files.createSymbolicLink(folder.resolve("d"), Path.of("c"));
    require(Files.readAllBytes(folder.resolve("d"))[4096] == 'x', "content");
    require(Files.getFileStore(folder).getTotalSpace() > 0, "no space");
    try (var names = Files.list(folder)) {
      require(names.count() == 3, "names");
    }
  }

  /** {@code WatchService} stands on inotify. */
  private static void watch() throws Exception {
    var folder = Files.createTempDirectory("watch");
    try (var watcher = folder.getFileSystem().newWatchService()) {
      folder.register(
          watcher, StandardWatchEventKinds.ENTRY_CREATE, StandardWatchEventKinds.ENTRY_DELETE);
      Files.writeString(folder.resolve("a"), "1");
      Files.delete(folder.resolve("a"));
      var seen = new ArrayList<String>();
      while (seen.size() < 2) {
        var key = watcher.poll(30, TimeUnit.SECONDS);
        require(key != null, seen);
        key.pollEvents().forEach(event -> seen.add(event.kind() + " " + event.context()));
        key.reset();
      }
      require(seen.equals(List.of("ENTRY_CREATE a", "ENTRY_DELETE a")), seen);
    }
  }

  /** A selector, which stands on epoll, with a hundred connections. */
  private static void selector() throws IOException {
    try (var selector = Selector.open();
        var server = ServerSocketChannel.open()) {
      server.bind(new InetSocketAddress("127.0.0.1", 0), 200);
      server.configureBlocking(false);
      server.register(selector, SelectionKey.OP_ACCEPT);
      var clients = new ArrayList<SocketChannel>();
      for (int i = 0; i < 100; i++) {
        var client = SocketChannel.open(server.getLocalAddress());
        client.write(ByteBuffer.wrap(new byte[] {(byte) i}));
        clients.add(client);
      }
      int echoed = 0;
      while (echoed < 100) {
        require(selector.select(30_000) > 0, echoed + " answers");
        for (var keys = selector.selectedKeys().iterator(); keys.hasNext(); ) {
          var key = keys.next();
          keys.remove();
          if (key.isAcceptable()) {
            var accepted = server.accept();
            accepted.configureBlocking(false);
            accepted.register(selector, SelectionKey.OP_READ);
          } else {
            var channel = (SocketChannel) key.channel();
            var buffer = ByteBuffer.allocate(16);
            require(channel.read(buffer) == 1, "not one byte");
            channel.write(buffer.flip());
            channel.close();
            echoed++;
          }
        }
      }
      for (int i = 0; i < 100; i++) {
        var buffer = ByteBuffer.allocate(16);
        require(clients.get(i).read(buffer) == 1 && buffer.get(0) == (byte) i, "echo " + i);
        clients.get(i).close();
      }
    }
  }

  /** The server and the client of the standard library. */
  private static void http() throws Exception {
    var server = com.sun.net.httpserver.HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    server.createContext(
        "/",
        exchange -> {
          var answer = exchange.getRequestURI().getPath().getBytes();
          exchange.sendResponseHeaders(200, answer.length);
          exchange.getResponseBody().write(answer);
          exchange.close();
        });
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
    var client = HttpClient.newHttpClient();
    var address = "http://127.0.0.1:" + server.getAddress().getPort();
    var futures =
        IntStream.range(0, 20)
            .mapToObj(i -> HttpRequest.newBuilder(URI.create(address + "/" + i)).build())
            .map(request -> client.sendAsync(request, HttpResponse.BodyHandlers.ofString()))
            .toList();
    for (int i = 0; i < 20; i++) {
      require(futures.get(i).get(30, TimeUnit.SECONDS).body().equals("/" + i), i);
    }
    server.stop(0);
  }

  /** The file of trusted certificates that Debian's packages make. */
  private static void certificates() throws Exception {
    var store =
        KeyStore.getInstance(
            Path.of(System.getProperty("java.home"), "lib/security/cacerts").toFile(),
            (char[]) null);
    require(store.size() > 50, store.size());
    require(
        javax.net.ssl.SSLContext.getDefault().getSupportedSSLParameters().getProtocols().length > 1,
        "TLS");
  }

  /**
   * Starting another program works on Linux; a guest refuses it with an exception that says why.
   */
  private static void process() throws Exception {
    try {
      new ProcessBuilder("/bin/true").start().waitFor();
    } catch (IOException refused) {
      require(refused.getMessage().contains("error="), refused);
    }
  }

  /** What SIGQUIT prints, through the interface that jcmd uses, and the heap's histogram. */
  private static void threadDump() throws Exception {
    var beans = ManagementFactory.getPlatformMBeanServer();
    var name = new javax.management.ObjectName("com.sun.management:type=DiagnosticCommand");
    var signature = new String[] {String[].class.getName()};
    for (var command : List.of("threadPrint", "gcClassHistogram", "vmInfo")) {
      var text = (String) beans.invoke(name, command, new Object[] {new String[0]}, signature);
      require(text.contains("main") || text.contains("java.lang"), text);
    }
    var bytes = new ByteArrayOutputStream();
    new Throwable("here").printStackTrace(new PrintStream(bytes));
    require(bytes.toString().contains("Check.threadDump"), bytes);
    var diagnostics = ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
    require(
        diagnostics.getVMOption("UseCompressedOops").getValue().equals("true"),
        "no compressed oops");
  }
}
