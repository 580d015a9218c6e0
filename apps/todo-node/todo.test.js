// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { bubbleSort, newApplication } from "./todo.js";

const entry = (name) => `{"name":"${name}","completed":false,"due":"0001-01-01T00:00:00Z"}`;
const names = ["Write presentation", "Host meetup", "Run tests", "Stand in traffic", "Learn Node"];

describe("routes", () => {
  const server = createServer(newApplication());
  before(async () => {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
  });
  after(() => server.close());
  const ask = (path, options) => fetch(`http://127.0.0.1:${server.address().port}${path}`, options);

  for (const [method, path, body, status, want] of [
    ["GET", "/", undefined, 200, "Welcome!\n"],
    ["GET", "/todos", undefined, 200, `[${names.map(entry).join(",")}]\n`],
    ["GET", "/todos/0", undefined, 200, `${entry(names[0])}\n`],
    ["GET", "/todos/4", undefined, 200, `${entry(names[4])}\n`],
    ["GET", "/todos/5", undefined, 200, "Todo not found: 5"],
    ["GET", "/todos/-1", undefined, 200, "Todo not found: -1"],
    ["GET", "/todos/abc", undefined, 200, `${entry(names[0])}\n`],
    ["GET", "/todos/length", undefined, 200, `${entry(names[0])}\n`],
    ["GET", "/other", undefined, 404, "404 page not found\n"],
    ["POST", "/todos", undefined, 405, "Method Not Allowed\n"],
    ["GET", "/sort", undefined, 405, "Method Not Allowed\n"],
    ["POST", "/sort", "[3,1,2,-5]", 200, "[-5,1,2,3]\n"],
    ["POST", "/sort", "[]", 200, "[]\n"],
    ["POST", "/sort", "null", 200, "[]\n"],
  ]) {
    test(`${method} ${path} ${body ?? ""}`, async () => {
      const response = await ask(path, { method, body });
      assert.equal(await response.text(), want);
      assert.equal(response.status, status);
    });
  }

  for (const [name, body, status] of [
    ["not JSON", "3,1,2", 400],
    ["not an array", '{"a":1}', 400],
    ["not integers", "[1.5]", 400],
    ["over the limit", `[${"1,".repeat(1 << 19)}1]`, 413],
  ]) {
    test(`POST /sort refuses what is ${name}`, async () => {
      const response = await ask("/sort", { method: "POST", body });
      await response.text();
      assert.equal(response.status, status);
    });
  }
});

test("bubbleSort sorts", () => {
  for (const length of [0, 1, 2, 3, 100]) {
    const numbers = Array.from({ length }, (_, i) => length - i);
    bubbleSort(numbers);
    assert.deepEqual(
      numbers,
      Array.from({ length }, (_, i) => i + 1),
    );
  }
});

test("the process stops with 0 at SIGTERM", async () => {
  const main = fileURLToPath(new URL("main.js", import.meta.url));
  const child = spawn(process.execPath, [main], { env: { ...process.env, PORT: "0" } });
  await once(child.stdout, "data");
  child.kill("SIGTERM");
  assert.deepEqual(await once(child, "exit"), [0, null]);
});
