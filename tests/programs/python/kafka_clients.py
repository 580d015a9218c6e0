# SPDX-License-Identifier: Apache-2.0
"""Two clients for Kafka, one in Python and one around librdkafka, against a broker in this process.

The broker knows one topic with one partition and the five requests that a
producer and a consumer without a group make. The last line is "kafka: ok".
"""

import socket
import socketserver
import struct
import threading
import time

import confluent_kafka
import kafka
import kafka.errors

TOPIC = "todos"
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
#: For each request the one version that is spoken.
VERSIONS = {PRODUCE: 3, FETCH: 4, LIST_OFFSETS: 1, METADATA: 1, API_VERSIONS: 0}
UNSUPPORTED_VERSION = 35


class Reader:
    """Takes fields off the front of a request."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        (value,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return value

    def raw(self, length):
        self.at += length
        return self.data[self.at - length : self.at]

    def string(self):
        length = self.take("h")
        return None if length < 0 else self.raw(length).decode()


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


class Broker(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self):
        self.batches = []  # (offset of the first record, number of records, bytes)
        self.end = 0
        self.changed = threading.Condition()
        super().__init__(("127.0.0.1", 0), Connection)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def append(self, batch):
        """Adds a record batch; gives back its offset."""
        with self.changed:
            first = self.end
            (count,) = struct.unpack_from(">i", batch, 57)
            self.batches.append((first, count, struct.pack(">q", first) + batch[8:]))
            self.end += count
            self.changed.notify_all()
            return first

    def read(self, offset, wait_s):
        """The batches from the one with `offset` on; waits for one."""
        with self.changed:
            self.changed.wait_for(lambda: self.end > offset, wait_s)
            return b"".join(b for first, n, b in self.batches if first + n > offset), self.end


class Connection(socketserver.BaseRequestHandler):
    def exactly(self, length):
        data = b""
        while len(data) < length:
            part = self.request.recv(length - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                (length,) = struct.unpack(">i", self.exactly(4))
                reader = Reader(self.exactly(length))
                api, version, correlation = reader.take("h"), reader.take("h"), reader.take("i")
                reader.string()  # client's name
                body = self.answer(api, version, reader)
                if body is not None:
                    self.request.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)
        except (EOFError, ConnectionError):
            pass

    def answer(self, api, version, reader):
        broker = self.server
        if api == API_VERSIONS:
            listed = b"".join(struct.pack(">hhh", a, v, v) for a, v in VERSIONS.items())
            error = 0 if version == 0 else UNSUPPORTED_VERSION
            return struct.pack(">hi", error, len(VERSIONS)) + listed
        assert VERSIONS[api] == version, (api, version)
        if api == METADATA:
            brokers = struct.pack(">ii", 1, 1) + string("127.0.0.1") + struct.pack(">ih", broker.port, -1)
            partition = struct.pack(">ihii", 1, 0, 0, 1) + struct.pack(">iiii", 1, 1, 1, 1)
            topic = struct.pack(">h", 0) + string(TOPIC) + b"\0" + partition
            return brokers + struct.pack(">ii", 1, 1) + topic
        if api == PRODUCE:
            reader.string()  # transaction
            acks = reader.take("h")
            reader.take("i"), reader.take("i"), reader.string(), reader.take("i"), reader.take("i")
            first = broker.append(reader.raw(reader.take("i")))
            body = struct.pack(">i", 1) + string(TOPIC) + struct.pack(">iihqqi", 1, 0, 0, first, -1, 0)
            return body if acks else None
        if api == LIST_OFFSETS:
            reader.take("i"), reader.take("i"), reader.string(), reader.take("i"), reader.take("i")
            offset = 0 if reader.take("q") == -2 else broker.end
            return struct.pack(">i", 1) + string(TOPIC) + struct.pack(">iihqq", 1, 0, 0, -1, offset)
        # Fetch
        reader.take("i")
        wait_ms = reader.take("i")
        reader.take("i"), reader.take("i"), reader.take("b")
        if reader.take("i") == 0:
            time.sleep(wait_ms / 1000)
            return struct.pack(">ii", 0, 0)
        reader.string(), reader.take("i"), reader.take("i")
        records, end = broker.read(reader.take("q"), wait_ms / 1000)
        partition = struct.pack(">iihqqii", 1, 0, 0, end, end, 0, len(records))
        return struct.pack(">ii", 0, 1) + string(TOPIC) + partition + records


def with_confluent(server, count):
    failures = []
    producer = confluent_kafka.Producer({"bootstrap.servers": server, "message.timeout.ms": 20000})
    for i in range(count):
        producer.produce(TOPIC, f"confluent {i}".encode(), callback=lambda e, _: e and failures.append(e))
        producer.poll(0)
    left = producer.flush(20)
    print("confluent-kafka: not delivered", left + len(failures))
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server, "group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    got, deadline = [], time.monotonic() + 30
    while len(got) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message and not message.error():
            got.append(message.value())
    consumer.close()
    print("confluent-kafka: received", len(got), got[-1] if got else None)
    return len(got) == count and not left and not failures


def with_kafka_python(server, count):
    producer = kafka.KafkaProducer(bootstrap_servers=server, api_version=(0, 11, 0), linger_ms=5)
    sent = [producer.send(TOPIC, f"kafka-python {i}".encode()) for i in range(count)]
    first = sent[0].get(timeout=30).offset
    producer.flush(30)
    last = sent[-1].get(timeout=30).offset
    producer.close()
    print("kafka-python: offsets", first, "to", last)
    consumer = kafka.KafkaConsumer(bootstrap_servers=server, api_version=(0, 11, 0), consumer_timeout_ms=20000)
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    consumer.seek(kafka.TopicPartition(TOPIC, 0), first)
    got = []
    for message in consumer:
        got.append(message.value)
        if len(got) == count:
            break
    consumer.close()
    print("kafka-python: received", len(got), got[-1] if got else None)
    return len(got) == count


def without_broker():
    """Both say so within their time when nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{free.getsockname()[1]}"
    try:
        kafka.KafkaProducer(bootstrap_servers=server, api_version_auto_timeout_ms=1000)
        refused = False
    except kafka.errors.NoBrokersAvailable:
        refused = True
    errors = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server, "error_cb": lambda e: errors.append(e.name()), "message.timeout.ms": 1000}
    )
    lost = []
    producer.produce(TOPIC, b"x", callback=lambda e, _: lost.append(e.name() if e else None))
    producer.flush(20)
    print("without a broker:", refused, "_TRANSPORT" in errors, lost)
    return refused and "_TRANSPORT" in errors and lost == ["_MSG_TIMED_OUT"]


def main():
    server = f"127.0.0.1:{Broker().port}"
    right = [with_confluent(server, 200), with_kafka_python(server, 200), without_broker()]
    print("kafka:", "ok" if all(right) else "WRONG")
    raise SystemExit(not all(right))


if __name__ == "__main__":
    main()
