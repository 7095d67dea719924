"""The load of the soak: numbered records, a reader, short-lived connections of every kind of misbehaviour, and faults on a schedule."""

import itertools
import random
import signal
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Consumer

from bench.faults.tools import Client
from bench.harness.frames import api_versions_request, metadata_request
from tests.support.clients import confluent
from tests.support.frames.wire import produce_frame
from tests.support.kafka.broker import KafkaNode
from tests.support.processes.kills import HELD, Traffic
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

READER = "reader"
BOUNDS = (50_000, 5_000)
READER_BYTES_PER_SECOND = 100_000
NAMES = 50
IDLE_MAX = 100
VISIT_S = 0.1
FAULT_S = 15.0
FROZEN_S = 2.0
SCRAPES = 50


class Worker:
    """A thread that repeats one step until it is stopped, and keeps the exception that ended it."""

    def __init__(self, step: Callable[[], object], pause_s: float = 0.0) -> None:
        self.failure: BaseException | None = None
        self._step, self._pause_s = step, pause_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._pause_s):
            try:
                self._step()
            except BaseException as failure:  # noqa: BLE001 - reported by the code that started it
                self.failure = failure
                return

    def stop(self) -> None:
        """Let the present step end."""
        self._over.set()
        self._thread.join(120)


class Reader:
    """A member of a group that reads through Sluice all the time, with a quota."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "soak", "auto.offset.reset": "earliest", "client.id": READER}
        self._consumer = Consumer({**settings, "session.timeout.ms": 30_000, **confluent.QUIET})
        self._consumer.subscribe([topic])
        self.records = 0

    def step(self) -> None:
        """Read for a moment."""
        message = self._consumer.poll(0.1)
        self.records += message is not None and message.error() is None

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class Visitors:
    """Connections that do one thing, right or wrong, and close; some stay for a while and are idle.

    Args:
        port: Sluice's port of a broker.
        topic: the topic that they produce to; its records are not checked.
    """

    def __init__(self, port: int, topic: str, seed: int) -> None:
        self._port, self._topic = port, topic
        self._dice = random.Random(seed)
        self._ask = api_versions_request(2).whole()
        self._idle: list[Client] = []
        self._manners = (
            self._asks,
            self._resets,
            self._half_closes,
            self._breaks_off,
            self._sends_garbage,
            self._pipelines,
            self._reads_nothing,
            self._claims,
            self._stays,
        )
        self.visits = 0

    def step(self) -> None:
        """Make one connection. A connection that Sluice closes, or cannot connect to a broker, is no error: the records are the proof."""
        self.visits += 1
        try:
            self._dice.choice(self._manners)()
        except OSError:
            return

    def close(self) -> None:
        """Close the idle connections."""
        for client in self._idle:
            client.socket.close()
        self._idle.clear()

    def _name(self) -> bytes:
        return b"visitor-%d" % self._dice.randrange(NAMES)

    def _produce(self, acks: int = 1, size: int = 2_000) -> bytes:
        return produce_frame(self._topic, bytes(size), acks=acks, client_id=self._name())

    def _visitor(self) -> Client:
        client = Client(self._port)
        client.socket.settimeout(2)
        return client

    def _asks(self) -> None:
        with self._visitor() as client:
            client.ask(self._ask)
            client.ask(self._produce())

    def _resets(self) -> None:
        client = self._visitor()
        client.send(self._produce(size=self._dice.randrange(100_000)))
        client.reset()

    def _half_closes(self) -> None:
        with self._visitor() as client:
            client.send(self._produce() * 2)
            client.socket.shutdown(1)
            client.until_closed()

    def _breaks_off(self) -> None:
        frame = self._produce(acks=self._dice.choice((0, 1)))
        with self._visitor() as client:
            client.send(frame + frame[: self._dice.randrange(len(frame))])

    def _sends_garbage(self) -> None:
        with self._visitor() as client:
            client.send(self._dice.randbytes(self._dice.randrange(1, 3_000)))

    def _pipelines(self) -> None:
        with self._visitor() as client:
            client.send(self._ask * 200)
            for _ in range(200):
                client.answer()

    def _reads_nothing(self) -> None:
        client = self._visitor()
        client.send(metadata_request().whole() * 50)
        time.sleep(VISIT_S)
        client.reset()

    def _claims(self) -> None:
        with self._visitor() as client:
            client.send(struct.pack(">i", self._dice.choice((-1, 0, 2**31 - 1))))
            client.until_closed()

    def _stays(self) -> None:
        client = self._visitor()
        client.ask(self._ask)
        self._idle.append(client)
        if len(self._idle) > IDLE_MAX:
            self._idle.pop(0).socket.close()


class Faults:
    """One fault after the other: changed quotas, an invalid quota file, a broker that hangs, one that dies, a burst of scrapes."""

    def __init__(self, sluice: SluiceProcess, node: KafkaNode, quotas: Path) -> None:
        self._sluice, self._node, self._quotas = sluice, node, quotas
        self._bounds = itertools.cycle(BOUNDS)
        self._turns = itertools.cycle((self._changes, self._spoils, self._freezes, self._changes, self._scrapes, self._kills))
        self.count = 0
        write_bounds(quotas, next(self._bounds))

    def step(self) -> None:
        """Cause the next fault."""
        next(self._turns)()
        self.count += 1

    def _changes(self) -> None:
        write_bounds(self._quotas, next(self._bounds))
        self._sluice.send(signal.SIGHUP)

    def _spoils(self) -> None:
        self._quotas.write_text("[[quota]]\nproducer_byte_rate = -1\n")
        self._sluice.send(signal.SIGHUP)

    def _freezes(self) -> None:
        self._node.process.signal(signal.SIGSTOP)
        time.sleep(FROZEN_S)
        self._node.process.signal(signal.SIGCONT)

    def _kills(self) -> None:
        self._node.kill()
        self._node.start()

    def _scrapes(self) -> None:
        for _ in range(SCRAPES):
            with urllib.request.urlopen(f"http://127.0.0.1:{self._sluice.admin_port}/metrics", timeout=20) as answer:
                answer.read()


def write_bounds(path: Path, held: int) -> None:
    """Write the quotas, including that of the producer that is over it."""
    write_quotas(
        path,
        [
            {"client-id": HELD, "producer_byte_rate": held},
            {"client-id": READER, "consumer_byte_rate": READER_BYTES_PER_SECOND},
            {"client-id": "<default>", "producer_byte_rate": READER_BYTES_PER_SECOND, "request_percentage": 200},
        ],
    )


def start_workers(traffic: Traffic, reader: Reader, visitors: Sequence[Visitors], faults: Faults) -> list[Worker]:
    """Start all threads of the load."""
    return [
        Worker(lambda: traffic.go_on(0.2)),
        Worker(reader.step),
        *[Worker(visitor.step, VISIT_S) for visitor in visitors],
        Worker(faults.step, FAULT_S),
    ]
