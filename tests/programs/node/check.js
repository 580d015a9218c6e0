// SPDX-License-Identifier: Apache-2.0

// Checks what Node needs of the system: `node check.js [NAME...]`. Prints a line for each check and ends with 0 when all
// passed. It passes on Linux; a guest must do the same.

import * as files from "./checks/files.js";
import * as network from "./checks/network.js";
import * as system from "./checks/system.js";

/** The most one check may take, milliseconds; a software-emulated guest is slow. */
const LIMIT_MS = 60_000;

const checks = { ...system, ...files, ...network };
const wanted = process.argv.slice(2);
let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  if (wanted.length > 0 && !wanted.includes(name)) {
    continue;
  }
  const began = performance.now();
  let timer;
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${LIMIT_MS} ms`)), LIMIT_MS);
  });
  try {
    await Promise.race([check(), late]);
    console.log(`ok ${name} (${Math.round(performance.now() - began)} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.stack}`);
  } finally {
    clearTimeout(timer);
  }
}
console.log(failed === 0 ? "node: ok" : `node: ${failed} failed`);
// Handles that a failed check left open must not keep the process.
process.exit(failed === 0 ? 0 : 1);
