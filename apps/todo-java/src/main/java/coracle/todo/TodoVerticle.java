// SPDX-License-Identifier: Apache-2.0
package coracle.todo;

import io.vertx.core.AbstractVerticle;
import io.vertx.core.Promise;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpHeaders;
import io.vertx.core.json.DecodeException;
import io.vertx.core.json.Json;
import io.vertx.core.json.JsonArray;
import io.vertx.core.json.JsonObject;
import io.vertx.ext.web.Router;
import io.vertx.ext.web.RoutingContext;
import io.vertx.ext.web.handler.BodyHandler;
import java.util.List;
import java.util.stream.Stream;

/** The routes of the service and the HTTP server in front of them. */
public final class TodoVerticle extends AbstractVerticle {
  /** Go's zero time: the published answers carry it for a date that was never set. */
  private static final String NEVER = "0001-01-01T00:00:00Z";

  /**
   * The study sorts 20 000 numbers, about 120 kB; one mebibyte keeps the quadratic sort from
   * running for hours.
   */
  private static final long MAX_SORT_BYTES = 1 << 20;

  /** The fixed content of the service. */
  private static final List<JsonObject> TODOS =
      Stream.of("Write presentation", "Host meetup", "Run tests", "Stand in traffic", "Learn Vertx")
          .map(name -> new JsonObject().put("name", name).put("completed", false).put("due", NEVER))
          .toList();

  private final int port;

  /**
   * A server that is not started yet.
   *
   * @param port where it will listen; 0 takes a free one
   */
  public TodoVerticle(int port) {
    this.port = port;
  }

  @Override
  public void start(Promise<Void> started) {
    vertx
        .createHttpServer()
        .requestHandler(router())
        .listen(port)
        .<Void>mapEmpty()
        .onComplete(started);
  }

  private Router router() {
    var router = Router.router(vertx);
    router.get("/").handler(context -> sendText(context, 200, "Welcome!\n"));
    router.get("/todos").handler(context -> sendJson(context, new JsonArray(TODOS)));
    router.get("/todos/:id").handler(TodoVerticle::show);
    router
        .post("/sort")
        .handler(BodyHandler.create(false).setBodyLimit(MAX_SORT_BYTES))
        .handler(TodoVerticle::sort);
    router.errorHandler(404, context -> sendText(context, 404, "404 page not found\n"));
    router.errorHandler(405, context -> sendText(context, 405, "Method Not Allowed\n"));
    router.errorHandler(413, context -> sendText(context, 413, "body exceeds 1048576 bytes\n"));
    return router;
  }

  /** Ids count from 0. As published, an unknown one is reported with status 200. */
  private static void show(RoutingContext context) {
    var id = entryNumber(context.pathParam("id"));
    if (id < 0 || id >= TODOS.size()) {
      sendText(context, 200, "Todo not found: " + id);
    } else {
      sendJson(context, TODOS.get(id));
    }
  }

  /** The entry that a path names: as published, what is not a number means 0. */
  private static int entryNumber(String text) {
    try {
      return Integer.parseInt(text);
    } catch (NumberFormatException error) {
      return 0;
    }
  }

  private static void sort(RoutingContext context) {
    long[] numbers;
    try {
      numbers = numbers(context.body().buffer());
    } catch (DecodeException | ClassCastException error) {
      sendText(context, 400, "want a JSON array of integers\n");
      return;
    }
    bubbleSort(numbers);
    var sorted = new JsonArray();
    for (var number : numbers) {
      sorted.add(number);
    }
    sendJson(context, sorted);
  }

  /** The integers of a JSON array; none for {@code null}. */
  private static long[] numbers(Buffer body) {
    var value = Json.decodeValue(body == null ? Buffer.buffer() : body);
    if (value == null) {
      return new long[0];
    }
    return ((JsonArray) value).stream().mapToLong(TodoVerticle::integer).toArray();
  }

  /** Json gives the smallest type that holds a number. */
  private static long integer(Object value) {
    if (value instanceof Integer || value instanceof Long) {
      return ((Number) value).longValue();
    }
    throw new DecodeException("not an integer: " + value);
  }

  /**
   * Sorts in place: the double loop with a swap and no early exit, so its work depends on the
   * length alone.
   */
  static void bubbleSort(long[] numbers) {
    for (int end = numbers.length - 1; end > 0; end--) {
      for (int i = 0; i < end; i++) {
        if (numbers[i] > numbers[i + 1]) {
          var larger = numbers[i];
          numbers[i] = numbers[i + 1];
          numbers[i + 1] = larger;
        }
      }
    }
  }

  private static void sendJson(RoutingContext context, Object value) {
    context
        .response()
        .putHeader(HttpHeaders.CONTENT_TYPE, "application/json; charset=utf-8")
        .end(Json.encodeToBuffer(value).appendString("\n"));
  }

  private static void sendText(RoutingContext context, int status, String text) {
    context
        .response()
        .setStatusCode(status)
        .putHeader(HttpHeaders.CONTENT_TYPE, "text/plain; charset=utf-8")
        .end(text);
  }
}
