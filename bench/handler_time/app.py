"""Paced Kafka clients for the loads of `bench.handler_time` that need more than hand-written frames.

python -m bench.handler_time.app BOOTSTRAP CLIENTS          prints "ready", runs until standard input ends

CLIENTS is a JSON list of objects: "kind" (produce, consume, bursts), "client_id", "topic", and what each kind takes, see below.
"""

import asyncio
import json
import os
import sys
import threading
import time
from typing import Any

import uvloop
from confluent_kafka import Consumer, Producer

from bench.harness.engine import HOST
from bench.harness.load import Counter, LoadConnection
from bench.harness.wire import read_templates

ended = threading.Event()


def produce(bootstrap: str, client: dict[str, Any]) -> None:
    """Send records of `record_bytes` at `rate` per second with librdkafka settings `settings`.

    The first `noise_bytes` of each are random and the rest are zeros, which determines how well it compresses.
    """
    settings = {"bootstrap.servers": bootstrap, "client.id": client["client_id"], "linger.ms": 0, "log_level": 3}
    producer = Producer(settings | client.get("settings", {}))
    noise = os.urandom(client.get("noise_bytes", client["record_bytes"]))
    value = noise.ljust(client["record_bytes"], b"\0")
    start, sent = time.monotonic(), 0
    while not ended.is_set():
        due = int((time.monotonic() - start) * client["rate"])
        for _ in range(sent, due):
            producer.produce(client["topic"], value)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(min(0.005, 1 / client["rate"]))


def consume(bootstrap: str, client: dict[str, Any]) -> None:
    """Read a topic in the group `group`; leave and come back after `rejoin_seconds`, if given."""
    settings = {"bootstrap.servers": bootstrap, "client.id": client["client_id"], "group.id": client["group"]}
    settings |= {"auto.offset.reset": "earliest", "log_level": 3, **client.get("settings", {})}
    while not ended.is_set():
        consumer = Consumer(settings)
        consumer.subscribe([client["topic"]])
        until = time.monotonic() + client.get("rejoin_seconds", 1e9)
        while not ended.is_set() and time.monotonic() < until:
            consumer.consume(1_000, 0.1)
        consumer.close()


def bursts(_bootstrap: str, client: dict[str, Any]) -> None:
    """Send the one request in the file `templates` to `port`, `depth` at once, `rate` bursts per second."""

    async def run() -> None:
        [template] = read_templates(client["templates"])
        counter = Counter(client["counter"])
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: LoadConnection(template, counter, refill=False), HOST, client["port"])
        while not ended.is_set():
            if connection.in_flight == 0:
                connection.send(client["depth"])
            await asyncio.sleep(1 / client["rate"])

    uvloop.run(run())


KINDS = {"produce": produce, "consume": consume, "bursts": bursts}


def main(bootstrap: str, clients: str) -> None:
    """Run all clients, each in a thread."""
    threads = [threading.Thread(target=KINDS[client["kind"]], args=(bootstrap, client)) for client in json.loads(clients)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
