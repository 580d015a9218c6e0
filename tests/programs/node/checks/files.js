// SPDX-License-Identifier: Apache-2.0

// Files: the thread pool's calls, streams, and notifications of changes.

import assert from "node:assert/strict";
import fs from "node:fs";
import { once } from "node:events";
import os from "node:os";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import zlib from "node:zlib";

/** Calls `body` with a fresh folder, which is removed afterwards. */
async function inFolder(body) {
  const folder = await fs.promises.mkdtemp(path.join(os.tmpdir(), "check-"));
  try {
    await body(folder);
  } finally {
    await fs.promises.rm(folder, { recursive: true });
  }
}

export function filesByPromises() {
  return inFolder(async (folder) => {
    const file = path.join(folder, "a");
    await fs.promises.writeFile(file, "one\n");
    await fs.promises.appendFile(file, "two\n");
    assert.equal(await fs.promises.readFile(file, "utf8"), "one\ntwo\n");
    await fs.promises.symlink("a", path.join(folder, "link"));
    assert.equal(
      await fs.promises.realpath(path.join(folder, "link")),
      await fs.promises.realpath(file),
    );
    await fs.promises.link(file, path.join(folder, "hard"));
    assert.equal((await fs.promises.stat(file)).nlink, 2);
    await fs.promises.chmod(file, 0o600);
    assert.equal((await fs.promises.stat(file)).mode & 0o777, 0o600);
    await fs.promises.utimes(file, 1, 2);
    assert.equal((await fs.promises.stat(file, { bigint: true })).mtimeNs, 2_000_000_000n);
    await fs.promises.copyFile(file, path.join(folder, "copy"));
    await fs.promises.rename(path.join(folder, "copy"), path.join(folder, "moved"));
    await fs.promises.mkdir(path.join(folder, "deep/er"), { recursive: true });
    const names = (await fs.promises.readdir(folder)).sort();
    assert.deepEqual(names, ["a", "deep", "hard", "link", "moved"]);
    await fs.promises.truncate(file, 3);
    assert.equal(await fs.promises.readFile(file, "utf8"), "one");
    const handle = await fs.promises.open(file, "r+");
    await handle.write("X", 1);
    await handle.sync();
    await handle.close();
    assert.equal(await fs.promises.readFile(file, "utf8"), "oXe");
    assert.ok((await fs.promises.statfs(folder)).bsize > 0);
    await assert.rejects(fs.promises.readFile(path.join(folder, "none")), { code: "ENOENT" });
    await assert.rejects(fs.promises.rmdir(folder), { code: "ENOTEMPTY" });
    await fs.promises.cp(folder, `${folder}-copy`, { recursive: true });
    await fs.promises.rm(`${folder}-copy`, { recursive: true });
  });
}

export function fileStreams() {
  return inFolder(async (folder) => {
    const plain = path.join(folder, "plain");
    const content = Buffer.alloc(3_000_000);
    for (let at = 0; at < content.length; at += 4) {
      content.writeUInt32LE(at, at);
    }
    await fs.promises.writeFile(plain, content);
    const packed = path.join(folder, "packed");
    const again = path.join(folder, "again");
    await pipeline(fs.createReadStream(plain), zlib.createGzip(), fs.createWriteStream(packed));
    await pipeline(fs.createReadStream(packed), zlib.createGunzip(), fs.createWriteStream(again));
    assert.ok(content.equals(await fs.promises.readFile(again)));
  });
}

/** `fs.watch` stands on inotify. */
export function fileWatch() {
  return inFolder(async (folder) => {
    const watcher = fs.watch(folder);
    const seen = [];
    const done = new Promise((resolve, reject) => {
      watcher.on("error", reject);
      watcher.on("change", (event, name) => {
        seen.push(`${event} ${name}`);
        if (seen.includes("rename b")) {
          resolve();
        }
      });
    });
    await fs.promises.writeFile(path.join(folder, "a"), "1");
    await fs.promises.appendFile(path.join(folder, "a"), "2");
    await fs.promises.rename(path.join(folder, "a"), path.join(folder, "b"));
    await done;
    watcher.close();
    assert.equal(seen[0], "rename a");
    assert.ok(seen.includes("change a"), seen.join());
    await once(watcher, "close").catch(() => {});
  });
}

export async function fileWatchByPolling() {
  await inFolder(async (folder) => {
    const file = path.join(folder, "a");
    await fs.promises.writeFile(file, "1");
    const changed = new Promise((resolve) => {
      fs.watchFile(file, { interval: 20 }, (now, before) => resolve([now.size, before.size]));
    });
    // The first look happens some time after the call: go on until a change was seen.
    const writer = setInterval(() => fs.appendFileSync(file, "2"), 50);
    const [now, before] = await changed;
    clearInterval(writer);
    assert.ok(now > before);
    fs.unwatchFile(file);
  });
}
