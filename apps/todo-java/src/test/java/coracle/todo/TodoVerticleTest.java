// SPDX-License-Identifier: Apache-2.0
package coracle.todo;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.vertx.core.Vertx;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

final class TodoVerticleTest {
  private static final List<String> NAMES =
      List.of("Write presentation", "Host meetup", "Run tests", "Stand in traffic", "Learn Vertx");

  private static final Vertx VERTX = Vertx.vertx();
  private static int port;

  @BeforeAll
  static void serve() throws Exception {
    try (var probe = new ServerSocket(0)) {
      port = probe.getLocalPort();
    }
    VERTX.deployVerticle(new TodoVerticle(port)).toCompletionStage().toCompletableFuture().get();
  }

  @AfterAll
  static void stop() throws Exception {
    VERTX.close().toCompletionStage().toCompletableFuture().get();
  }

  private static String entry(String name) {
    return "{\"name\":\"%s\",\"completed\":false,\"due\":\"0001-01-01T00:00:00Z\"}".formatted(name);
  }

  private static HttpResponse<String> ask(String method, String path, String body)
      throws IOException, InterruptedException {
    var address = URI.create("http://127.0.0.1:%d%s".formatted(port, path));
    var publisher = body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(body);
    var request = HttpRequest.newBuilder(address).method(method, publisher).build();
    return HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
  }

  static Stream<Arguments> requests() {
    var all =
        NAMES.stream().map(TodoVerticleTest::entry).collect(Collectors.joining(",", "[", "]"));
    var first = entry(NAMES.get(0)) + "\n";
    return Stream.of(
        Arguments.of("GET", "/", null, 200, "Welcome!\n"),
        Arguments.of("GET", "/todos", null, 200, all + "\n"),
        Arguments.of("GET", "/todos/0", null, 200, first),
        Arguments.of("GET", "/todos/4", null, 200, entry(NAMES.get(4)) + "\n"),
        Arguments.of("GET", "/todos/5", null, 200, "Todo not found: 5"),
        Arguments.of("GET", "/todos/-1", null, 200, "Todo not found: -1"),
        Arguments.of("GET", "/todos/abc", null, 200, first),
        Arguments.of("GET", "/other", null, 404, "404 page not found\n"),
        Arguments.of("POST", "/todos", null, 405, "Method Not Allowed\n"),
        Arguments.of("GET", "/sort", null, 405, "Method Not Allowed\n"),
        Arguments.of("POST", "/sort", "[3,1,2,-5]", 200, "[-5,1,2,3]\n"),
        Arguments.of("POST", "/sort", "[]", 200, "[]\n"),
        Arguments.of("POST", "/sort", "null", 200, "[]\n"),
        Arguments.of(
            "POST",
            "/sort",
            "[" + "1,".repeat(1 << 19) + "1]",
            413,
            "body exceeds 1048576 bytes\n"));
  }

  @ParameterizedTest
  @MethodSource("requests")
  void answers(String method, String path, String body, int status, String want) throws Exception {
    var response = ask(method, path, body);
    assertEquals(want, response.body());
    assertEquals(status, response.statusCode());
  }

  @ParameterizedTest
  @ValueSource(strings = {"3,1,2", "{\"a\":1}", "[1.5]", "[null]", ""})
  void sortRefuses(String body) throws Exception {
    assertEquals(400, ask("POST", "/sort", body).statusCode());
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 2, 3, 100})
  void bubbleSortSorts(int length) {
    var numbers = LongStream.range(0, length).map(i -> length - i).toArray();
    TodoVerticle.bubbleSort(numbers);
    assertArrayEquals(LongStream.rangeClosed(1, length).toArray(), numbers);
  }

  @Test
  void aPortInUseIsReported() throws Exception {
    try (var taken = new ServerSocket(0)) {
      var deployed =
          VERTX
              .deployVerticle(new TodoVerticle(taken.getLocalPort()))
              .transform(result -> io.vertx.core.Future.succeededFuture(result.failed()))
              .toCompletionStage()
              .toCompletableFuture()
              .get();
      assertEquals(true, deployed);
    }
  }
}
