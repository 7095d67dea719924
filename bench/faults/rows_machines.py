"""Rows A2 and A3 with a broker in another network namespace, whose network drops all packets. Needs root, for namespaces."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.faults.tools import MIB, Client, Figure, ms
from bench.harness.engine import ROOT, rss_bytes
from bench.harness.frames import produce_request
from bench.harness.scripted_broker import BrokerConnection, Request, ScriptedBroker
from tests.support.ports import free_bootstrap_port
from tests.support.processes.namespaces import FAR_ADDRESS, Wire

LISTEN = "127.0.0.1"
START_SECONDS_MAX = 20


@dataclass
class Machines:
    """A proxy in one network namespace, a broker in another."""

    wire: Wire
    process: subprocess.Popen[bytes]
    port: int
    broker: ScriptedBroker

    def client(self) -> Client:
        """Return a client in the proxy's namespace."""
        return Client(self.port, connected=self.wire.connect(self.port))

    @property
    def rss(self) -> int:
        return rss_bytes([self.process.pid])

    def sockets(self) -> int:
        """Return the number of the proxy's file descriptors."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def until_sockets(self, count: int, seconds: float) -> float:
        """Wait until the proxy has at most this many; return the seconds."""
        start = time.monotonic()
        while self.sockets() > count and time.monotonic() < start + seconds:
            time.sleep(0.002)
        return time.monotonic() - start


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """Start both; raises NoNamespacesError where namespaces are not available."""
    port = free_bootstrap_port()
    with Wire() as wire:
        broker = ScriptedBroker(_small_only, host=FAR_ADDRESS)
        wire.at_far(broker.listen)
        command = [sys.executable, "-m", "sluice_cli", "run", "--listen", f"{LISTEN}:{port}", "--upstream", f"{FAR_ADDRESS}:{broker.port}"]
        with (folder / f"machines-{port}.log").open("ab") as log:
            process = subprocess.Popen(wire.command(command), cwd=ROOT, stdout=log, stderr=log)
        try:
            _wait(wire, port)
            yield Machines(wire, process, port, broker)
        finally:
            process.kill()
            process.wait()
            broker.stop_listening()


def _small_only(connection: BrokerConnection, request: Request) -> None:
    if len(request.frame) < MIB:
        connection.answer(request)


def _wait(wire: Wire, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with Client(port, connected=wire.connect(port)) as client:
                client.ask()
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def a2_machine_gone(folder: Path) -> list[Figure]:
    """The network to the broker drops everything: memory per connection, how soon clients that close are released, and when others are
    closed.
    """
    with machines(folder) as bench:
        time.sleep(1.5)  # the first round of the disconnect watcher registers the connections
        base = bench.sockets()
        full, waiting, idle = (bench.client() for _ in range(3))
        for client in (full, waiting, idle):
            client.ask()
        time.sleep(2)
        before = bench.rss
        bench.wire.swallow()
        start = time.monotonic()
        waiting.send(produce_request(7, filler=200).whole())
        full.socket.settimeout(0.5)
        try:
            full.send(produce_request(7, filler=64 * MIB).whole())
        except TimeoutError:
            held = bench.rss - before
        else:
            raise RuntimeError("the network did not swallow")
        others = bench.sockets() - 2
        full.reset()
        left = bench.until_sockets(others, 30)
        ended = [client.until_closed()[0] - start for client in (waiting, idle)]
        after = bench.until_sockets(base, 30)
        bench.wire.mend()
    return [
        Figure("A2N", "broker's machine gone: memory held for a connection that goes on sending", held / 1024, 512, "KiB"),
        Figure("A2N", "the sockets of a client that left meanwhile closed", ms(left), 200, "ms"),
        Figure("A2N", "a connection that waits for an answer given up", ended[0], 60, "s"),
        Figure("A2N", "an idle connection given up", ended[1], 60, "s"),
        Figure("A2N", "their sockets closed after that", ms(after), 200, "ms"),
    ]


def a3_machine_gone_before(folder: Path) -> list[Figure]:
    """The network drops the first packet of a connection: how long its client waits."""
    with machines(folder) as bench:
        bench.wire.swallow()
        waits = []
        for _ in range(3):
            with bench.client() as client:
                start = time.monotonic()
                waits.append(client.until_closed()[0] - start)
        bench.wire.mend()
    return [Figure("A3N", "broker's machine gone: a new client closed", max(waits), 5.5, "s")]


ROWS: dict[str, Callable[[Path], list[Figure]]] = {"A2N": a2_machine_gone, "A3N": a3_machine_gone_before}
