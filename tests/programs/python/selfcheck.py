# SPDX-License-Identifier: Apache-2.0
"""What Python programs use of a kernel, in short; the last line is "python: ok"."""

import asyncio
import concurrent.futures
import ctypes
import locale
import os
import shutil
import signal
import socket
import sqlite3
import ssl
import sys
import tempfile
import threading
import time

import numpy


def check(name, got, wanted):
    print(f"{name}: {got}")
    if got != wanted:
        raise SystemExit(f"{name}: {wanted} was expected")


async def echo_server():
    async def echo(reader, writer):
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def client(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(20):
            message = b"%d-%d" % (number, i)
            writer.write(message)
            if await reader.readexactly(len(message)) != message:
                return 0
        writer.close()
        await writer.wait_closed()
        return 1

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answered = sum(await asyncio.gather(*[client(i) for i in range(10)]))
    server.close()
    await server.wait_closed()
    try:
        await asyncio.wait_for(asyncio.sleep(60), 0.02)
    except TimeoutError:
        answered += 100
    return answered + await asyncio.to_thread(lambda: 1000)


def encrypted():
    """Whether a client offers a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return to_server.pending > 100


def threads():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        total = sum(pool.map(lambda n: n * n, range(500)))
    event = threading.Event()
    threading.Timer(0.02, event.set).start()
    return total if event.wait(10) else "no timer"


def signals():
    seen = []
    signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    time.sleep(0.2)
    return seen


def files():
    with tempfile.TemporaryDirectory() as folder:
        first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
        with open(first, "w") as out:
            out.write("text")
        os.setxattr(first, "user.note", b"kept")
        shutil.copy2(first, second)
        base = sqlite3.connect(os.path.join(folder, "base"))
        base.execute("create table t(n)")
        base.executemany("insert into t values(?)", [(n,) for n in range(100)])
        base.commit()
        (rows,) = base.execute("select sum(n) from t").fetchone()
        return os.getxattr(second, "user.note"), rows


def no_other_process():
    """fork says no with an error that programs understand."""
    try:
        os.fork()
    except OSError:
        return "refused"
    return "worked"


def main():
    check("version", sys.version_info[:2], (3, 11))
    check("asyncio", asyncio.run(echo_server()), 1110)
    check("ssl", encrypted(), True)
    check("threads", threads(), 41541750)
    check("signals", signals(), [signal.SIGALRM])
    check("files", files(), (b"kept", 4950))
    check("numpy", float((numpy.arange(10000.0).reshape(100, 100) @ numpy.eye(100)).sum()), 49995000.0)
    check("locale", locale.setlocale(locale.LC_ALL, "C.UTF-8"), "C.UTF-8")
    check("ctypes", ctypes.CDLL("libc.so.6").getpid(), os.getpid())
    check("names", socket.gethostbyname("localhost"), "127.0.0.1")
    check("fork", no_other_process(), "refused")
    print("python: ok")


if __name__ == "__main__":
    main()
