// SPDX-License-Identifier: Apache-2.0
package coracle.todo;

import io.vertx.core.DeploymentOptions;
import io.vertx.core.Vertx;
import java.util.concurrent.TimeUnit;

/**
 * The to-do REST service of Goethals et al. 2018 on Vert.x. It knows nothing of the kernel it runs
 * on: the same jars are measured on Linux and as a unikernel.
 */
public final class Main {
  /** The port of the published service. */
  private static final int DEFAULT_PORT = 8080;

  /** How long running requests may take after SIGTERM. */
  private static final int SHUTDOWN_GRACE_SECONDS = 5;

  private Main() {}

  /**
   * Serves until a signal ends the virtual machine.
   *
   * @param arguments are not looked at
   */
  public static void main(String[] arguments) {
    var port = Integer.getInteger("port", port(System.getenv("PORT")));
    var vertx = Vertx.vertx();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> close(vertx), "shutdown"));
    // One instance for each processor, as Vert.x advises; they share the port.
    var options = new DeploymentOptions().setInstances(Runtime.getRuntime().availableProcessors());
    vertx
        .deployVerticle(() -> new TodoVerticle(port), options)
        .onSuccess(id -> System.out.println("listening on port " + port))
        .onFailure(
            error -> {
              System.err.println("todo-java: " + error.getMessage());
              System.exit(1);
            });
  }

  private static int port(String text) {
    return text == null || text.isEmpty() ? DEFAULT_PORT : Integer.parseInt(text);
  }

  private static void close(Vertx vertx) {
    try {
      vertx
          .close()
          .toCompletionStage()
          .toCompletableFuture()
          .get(SHUTDOWN_GRACE_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    } catch (java.util.concurrent.ExecutionException
        | java.util.concurrent.TimeoutException error) {
      System.err.println("todo-java: stopping: " + error);
    }
  }
}
