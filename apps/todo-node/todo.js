// SPDX-License-Identifier: Apache-2.0

// The routes of the service, apart from the server so that tests can mount them.

import express from "express";

/** Go's zero time: the published answers carry it for a date that was never set. */
const NEVER = "0001-01-01T00:00:00Z";

/** The fixed content of the service. */
const todos = [
  "Write presentation",
  "Host meetup",
  "Run tests",
  "Stand in traffic",
  "Learn Node",
].map((name) => ({ name, completed: false, due: NEVER }));

/** The study sorts 20 000 numbers, about 120 kB; one mebibyte keeps the quadratic sort from running for hours. */
const MAX_SORT_BYTES = 1 << 20;

/** Sorts in place: the double loop with a swap and no early exit, so its work depends on the length alone. */
export function bubbleSort(numbers) {
  for (let end = numbers.length - 1; end > 0; end--) {
    for (let i = 0; i < end; i++) {
      if (numbers[i] > numbers[i + 1]) {
        [numbers[i], numbers[i + 1]] = [numbers[i + 1], numbers[i]];
      }
    }
  }
}

/** The entry number that a path names: as published, what is not a number means 0. */
function entryNumber(text) {
  return /^[+-]?\d+$/.test(text) ? Number.parseInt(text, 10) : 0;
}

function sendJson(response, value) {
  response.type("application/json").send(`${JSON.stringify(value)}\n`);
}

function sendText(response, status, text) {
  response.status(status).type("text/plain").send(text);
}

/** Answers with 405 what matched a path but none of its methods. */
function methodNotAllowed(request, response) {
  sendText(response, 405, "Method Not Allowed\n");
}

/** The service as an Express application. */
export function newApplication() {
  const application = express();
  application.disable("x-powered-by");
  application.disable("etag");

  application
    .route("/")
    .get((request, response) => sendText(response, 200, "Welcome!\n"))
    .all(methodNotAllowed);

  application
    .route("/todos")
    .get((request, response) => sendJson(response, todos))
    .all(methodNotAllowed);

  application
    .route("/todos/:id")
    .get((request, response) => {
      const id = entryNumber(request.params.id);
      if (id in todos) {
        sendJson(response, todos[id]);
      } else {
        sendText(response, 200, `Todo not found: ${id}`);
      }
    })
    .all(methodNotAllowed);

  const body = express.json({ limit: MAX_SORT_BYTES, strict: false, type: () => true });
  application
    .route("/sort")
    .post(body, (request, response) => {
      const numbers = request.body ?? [];
      if (!Array.isArray(numbers) || !numbers.every(Number.isSafeInteger)) {
        sendText(response, 400, "want a JSON array of integers\n");
        return;
      }
      bubbleSort(numbers);
      sendJson(response, numbers);
    })
    .all(methodNotAllowed);

  application.use((request, response) => sendText(response, 404, "404 page not found\n"));
  // Express tells handlers of errors by their four parameters.
  application.use((error, request, response, next) => {
    if (response.headersSent) {
      next(error);
      return;
    }
    const status = error.status ?? 500;
    if (status >= 500) {
      console.error(error);
    }
    sendText(response, status, `${status >= 500 ? "internal error" : error.message}\n`);
  });
  return application;
}
