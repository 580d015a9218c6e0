// SPDX-License-Identifier: Apache-2.0

// Sockets, HTTP, TLS, names, and two libraries that many services stand on.

import assert from "node:assert/strict";
import crypto from "node:crypto";
import dgram from "node:dgram";
import dns from "node:dns";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import net from "node:net";
import os from "node:os";
import path from "node:path";

import express from "express";
import { Server } from "socket.io";
import { io } from "socket.io-client";

const certificate = fs.readFileSync(new URL("certificate.pem", import.meta.url));
const key = fs.readFileSync(new URL("key.pem", import.meta.url));

/** A server on a free port of the loopback interface. */
async function listening(server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server.address().port;
}

export async function httpHello() {
  const server = http.createServer((request, response) => response.end(`hello ${request.url}`));
  const port = await listening(server);
  const answers = await Promise.all(
    Array.from({ length: 20 }, async (_, i) =>
      (await fetch(`http://127.0.0.1:${port}/${i}`)).text(),
    ),
  );
  assert.equal(answers[19], "hello /19");
  server.closeAllConnections();
  server.close();
}

export async function expressAnswers() {
  const application = express();
  application.post("/double", express.json(), (request, response) => {
    response.json({ value: request.body.value * 2 });
  });
  const server = http.createServer(application);
  const port = await listening(server);
  const response = await fetch(`http://127.0.0.1:${port}/double`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ value: 21 }),
  });
  assert.deepEqual(await response.json(), { value: 42 });
  server.closeAllConnections();
  server.close();
}

/** Both transports of socket.io: long polling, and the WebSocket it changes to. */
export async function socketIo() {
  for (const transports of [["polling"], ["websocket"], ["polling", "websocket"]]) {
    const server = http.createServer();
    const sockets = new Server(server);
    sockets.on("connection", (socket) => {
      socket.emit("message", { text: "Welcome!" });
      socket.on("subscribe", (room, done) => {
        socket.join(room);
        done("joined");
      });
    });
    const port = await listening(server);
    const client = io(`http://127.0.0.1:${port}`, { transports, forceNew: true });
    const [message] = await once(client, "message");
    assert.deepEqual(message, { text: "Welcome!" });
    assert.equal(await client.emitWithAck("subscribe", "scores"), "joined");
    const scores = once(client, "scores");
    sockets.to("scores").emit("scores", Buffer.from([1, 2, 3]));
    assert.equal((await scores)[0].length, 3);
    client.close();
    await sockets.close();
  }
}

export async function tlsServerAndClient() {
  const server = https.createServer({ cert: certificate, key }, (request, response) => {
    response.end("secret");
  });
  const port = await listening(server);
  const get = (options) =>
    new Promise((resolve, reject) => {
      const request = https.get(
        { port, host: "127.0.0.1", agent: false, ...options },
        (response) => {
          response.setEncoding("utf8");
          let body = "";
          response.on("data", (text) => (body += text));
          response.on("end", () => resolve([body, response.socket.getProtocol()]));
        },
      );
      request.on("error", reject);
    });
  assert.deepEqual(await get({ ca: certificate, servername: "localhost" }), ["secret", "TLSv1.3"]);
  assert.deepEqual(await get({ ca: certificate, servername: "localhost", maxVersion: "TLSv1.2" }), [
    "secret",
    "TLSv1.2",
  ]);
  await assert.rejects(get({}), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" });
  server.close();
}

export async function http2OverTls() {
  const server = http2.createSecureServer({ cert: certificate, key });
  server.on("stream", (stream, headers) => stream.end(headers[":path"]));
  const port = await listening(server);
  const client = http2.connect(`https://localhost:${port}`, {
    ca: certificate,
    lookup: (name, options, done) => done(null, [{ address: "127.0.0.1", family: 4 }]),
  });
  const paths = await Promise.all(
    ["/a", "/b", "/c"].map(async (name) => {
      const stream = client.request({ ":path": name });
      stream.setEncoding("utf8");
      let body = "";
      for await (const text of stream) {
        body += text;
      }
      return body;
    }),
  );
  assert.deepEqual(paths, ["/a", "/b", "/c"]);
  client.close();
  server.close();
}

/** Names: the C library's `getaddrinfo` on the thread pool, and c-ares, asking a server of ours. */
export async function names() {
  assert.ok(["127.0.0.1", "::1"].includes((await dns.promises.lookup("localhost")).address));
  const server = dgram.createSocket("udp4");
  server.on("message", (query, from) => {
    const answer = Buffer.concat([query.subarray(0, query.indexOf(0, 12) + 5), Buffer.alloc(16)]);
    answer.writeUInt16BE(0x8180, 2); // an answer without error
    answer.writeUInt16BE(1, 6);
    answer.writeUInt32BE(0, 8); // neither authority nor additional records
    answer.set([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 1, 2, 3], answer.length - 16);
    server.send(answer, from.port, from.address);
  });
  server.bind(0, "127.0.0.1");
  await once(server, "listening");
  const resolver = new dns.promises.Resolver();
  resolver.setServers([`127.0.0.1:${server.address().port}`]);
  assert.deepEqual(await resolver.resolve4("service.example"), ["10.1.2.3"]);
  server.close();
}

export async function unixSocket() {
  const where = path.join(os.tmpdir(), `check-${process.pid}.sock`);
  const server = net.createServer((socket) => socket.pipe(socket));
  server.listen(where);
  await once(server, "listening");
  const client = net.connect(where);
  client.end("echo");
  const [echo] = await once(client, "data");
  assert.equal(echo.toString(), "echo");
  server.close();
}

export async function muchDataThroughTcp() {
  const content = crypto.randomBytes(8 << 20);
  const server = net.createServer((socket) => socket.end(content));
  const port = await listening(server);
  const client = net.connect(port, "127.0.0.1");
  const parts = [];
  client.on("data", (part) => parts.push(part));
  await once(client, "end");
  assert.ok(Buffer.concat(parts).equals(content));
  server.close();
}

export async function refusedConnection() {
  const client = net.connect(1, "127.0.0.1");
  const [error] = await once(client, "error");
  assert.equal(error.code, "ECONNREFUSED");
}
