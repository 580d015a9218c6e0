// SPDX-License-Identifier: Apache-2.0

// The to-do REST service of Goethals et al. 2018 on Express. It knows nothing of the kernel it runs on: the same files
// are measured on Linux and as a unikernel.

import { createServer } from "node:http";

import { newApplication } from "./todo.js";

/** The port of the published service. */
const DEFAULT_PORT = 8080;

/** How long running requests may take after SIGTERM, milliseconds. */
const SHUTDOWN_GRACE_MS = 5000;

const server = createServer(newApplication());

function stop() {
  server.close();
  server.closeIdleConnections();
  setTimeout(() => server.closeAllConnections(), SHUTDOWN_GRACE_MS).unref();
}

process.once("SIGTERM", stop);
process.once("SIGINT", stop);

server.once("error", (error) => {
  console.error(`todo-node: ${error.message}`);
  process.exitCode = 1;
});
server.listen(Number(process.env.PORT ?? DEFAULT_PORT), () => {
  console.log(`listening on port ${server.address().port}`);
});
