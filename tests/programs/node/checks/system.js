// SPDX-License-Identifier: Apache-2.0

// Processes, threads, signals, memory and the compiler.

import assert from "node:assert/strict";
import childProcess from "node:child_process";
import crypto from "node:crypto";
import { once } from "node:events";
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import util from "node:util";
import v8 from "node:v8";
import vm from "node:vm";
import { Worker } from "node:worker_threads";

/** What the machine says of itself. */
export function machine() {
  assert.equal(os.platform(), "linux");
  assert.ok(os.cpus().length >= 1 && os.availableParallelism() >= 1);
  assert.ok(os.totalmem() > os.freemem() && os.freemem() > 0);
  assert.ok(os.uptime() > 0);
  assert.equal(os.loadavg().length, 3);
  assert.ok(os.networkInterfaces().lo.some((one) => one.address === "127.0.0.1"));
  assert.ok(os.userInfo().uid >= 0);
  const memory = process.memoryUsage();
  assert.ok(memory.rss > memory.heapUsed);
  assert.ok(process.resourceUsage().minorPageFault > 0);
  assert.ok(process.constrainedMemory() >= 0);
  assert.ok(process.report.getReport().sharedObjects.length > 0);
}

/** Optimised code, and code that is given up again. */
export function compiler() {
  const sum = new Function(
    "n",
    "step",
    "let s = 0; for (let i = 0; i < n; i++) s += step(i); return s",
  );
  assert.equal(
    sum(2e6, (i) => i),
    1999999000000,
  );
  assert.equal(sum(100, (i) => String(i)).length, 191);
  for (let i = 0; i < 200; i++) {
    assert.equal(vm.runInNewContext(`(function () { return ${i} + x })()`, { x: 1 }), i + 1);
  }
  const bytes = Uint8Array.of(
    ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7, 1, 3],
    ...[97, 100, 100, 0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11],
  );
  const { add } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
  assert.equal(add(40, 2), 42);
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 100 });
  memory.grow(99);
  new Uint8Array(memory.buffer)[99 << 16] = 1;
}

/** Short-lived and long-lived objects; memory goes back after they are gone. */
export async function garbageCollection() {
  v8.setFlagsFromString("--expose-gc");
  const collect = vm.runInNewContext("gc");
  let kept = [];
  for (let i = 0; i < 300_000; i++) {
    kept.push({ i, text: `number ${i}` });
  }
  const buffers = Array.from({ length: 32 }, () => Buffer.alloc(1 << 20, 1));
  const full = process.memoryUsage();
  assert.ok(full.arrayBuffers >= 32 << 20);
  // Used after the measurement, so that nobody finds out earlier that they are dead.
  assert.equal(kept.length, 300_000);
  kept = null;
  buffers.length = 0;
  for (let i = 0; i < 4; i++) {
    collect();
    await sleep(10);
  }
  const empty = process.memoryUsage();
  assert.ok(empty.heapUsed < full.heapUsed - 10e6, `${full.heapUsed} to ${empty.heapUsed}`);
  assert.ok(empty.rss < full.rss - 30e6, `${full.rss} to ${empty.rss}`);
}

export async function workers() {
  const shared = new Int32Array(new SharedArrayBuffer(4));
  const source = `const { parentPort, workerData } = require("node:worker_threads");
    for (let i = 0; i < 10000; i++) Atomics.add(workerData, 0, 1);
    Atomics.notify(workerData, 0);
    parentPort.once("message", (n) => parentPort.postMessage(n * 2));`;
  const results = await Promise.all(
    [1, 2, 3, 4].map(async (n) => {
      const worker = new Worker(source, { eval: true, workerData: shared });
      // Asked for together: the answer of a worker that is over already is delivered with its end, before anybody who
      // waits for the answer runs again.
      const answered = once(worker, "message");
      const ended = once(worker, "exit");
      worker.postMessage(n);
      const [answer] = await answered;
      const [code] = await ended;
      assert.equal(code, 0);
      return answer;
    }),
  );
  assert.deepEqual(results, [2, 4, 6, 8]);
  assert.equal(shared[0], 40000);
  const endless = new Worker("for (;;);", { eval: true });
  await once(endless, "online");
  assert.equal(await endless.terminate(), 1);
}

export async function threadPool() {
  const scrypt = util.promisify(crypto.scrypt);
  const keys = await Promise.all(
    Array.from({ length: 8 }, (_, i) => scrypt(`p${i}`, "salt", 32, { N: 256 })),
  );
  assert.equal(new Set(keys.map((key) => key.toString("hex"))).size, 8);
  const { publicKey, privateKey } = await util.promisify(crypto.generateKeyPair)("ed25519");
  const signature = crypto.sign(null, Buffer.from("text"), privateKey);
  assert.ok(crypto.verify(null, Buffer.from("text"), publicKey, signature));
}

export async function signals() {
  for (const name of ["SIGUSR2", "SIGHUP", "SIGINT"]) {
    const received = once(process, name);
    process.kill(process.pid, name);
    assert.equal((await received)[0], name);
  }
}

export async function timers() {
  const began = performance.now();
  await sleep(50);
  assert.ok(performance.now() - began >= 49);
  const immediate = new Promise((resolve) => setImmediate(resolve));
  await Promise.all([immediate, sleep(1), sleep(2)]);
  let ticks = 0;
  await new Promise((resolve) => {
    const interval = setInterval(() => {
      ticks += 1;
      if (ticks === 5) {
        clearInterval(interval);
        resolve();
      }
    }, 2);
  });
}

/** Here Linux and a guest differ on purpose: there, no other process can be started, and the error says so. */
export async function childProcesses() {
  const refusals = ["ENOSYS", "EAGAIN", "ENOENT"];
  try {
    const child = childProcess.spawn(process.execPath, ["--version"]);
    const [code] = await Promise.race([once(child, "exit"), once(child, "error")]);
    assert.equal(code, 0);
  } catch (error) {
    assert.ok(refusals.includes(error.code), error.message);
  }
  try {
    childProcess.execFileSync(process.execPath, ["--version"]);
  } catch (error) {
    assert.ok(refusals.includes(error.code), error.message);
  }
}

export function deepRecursion() {
  const down = (n) => 1 + down(n + 1);
  assert.throws(() => down(0), RangeError);
}
