"""Rows F1 and F2: connection storms, from one address and from many."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.faults.tools import MIB, Client, Crowd, Figure, crowded, ms, p99
from bench.harness.arms import Arm
from bench.harness.engine import Child
from bench.harness.frames import api_versions_request
from bench.storms.connect_app import source

ATTEMPTS_PER_SECOND, STORM_SECONDS = 2_000, 5
RATE, PROCESS_RATE = 20, 1_000
MANY = 2_000
PROBES_PER_SECOND = 50
HELD, ACCEPTED, CONNECTS = "kafka_sluice_connections_held", "kafka_quota_connections_accepted_total", "kafka_sluice_upstream_connects_total"


class Storm(Child):
    """2,000 attempts a second, from a child process.

    Attributes:
        attempts: the number of attempts; known after `stop`.
    """

    def __init__(self, port: int, sources: int) -> None:
        super().__init__([sys.executable, "-m", "bench.storms.connect_app", str(port), str(ATTEMPTS_PER_SECOND), str(sources)])
        self.attempts = 0

    def stop(self) -> None:
        """End the storm and read the number of attempts."""
        self.process.stdin.close()
        self.attempts = int(self.process.stdout.readline())
        super().stop()


def f1_storm_of_one(folder: Path) -> list[Figure]:
    """2,000 connections a second from one address that may open 20: how many are admitted or held, and latency of others."""
    with _paced(folder) as crowd:
        arm = crowd.arm
        _limit(arm, source(0), RATE)
        calm, _ = _probe(arm, STORM_SECONDS)
        began, before = time.monotonic(), _count(arm, CONNECTS)
        storm = Storm(arm.port, 1)
        beside, held = _probe(arm, STORM_SECONDS)
        storm.stop()
        elapsed = time.monotonic() - began
        let_in = _count(arm, CONNECTS) - before - len(beside)
        time.sleep(1.5)  # until the last held connection is closed
        turned_away = sum(
            _count(arm, "kafka_sluice_closes_total", reason) for reason in ("ip_connection_rate", "ip_connection_rate_unheld")
        )
        let_in_by_count = _count(arm, ACCEPTED) - turned_away
        return [
            Figure("F1", f"attempts per second from one address ({storm.attempts:,} in all)", storm.attempts / elapsed, None, "/s"),
            Figure("F1", "let in, the burst of one second left out", (let_in - RATE) / elapsed, RATE + 1, "/s"),
            Figure("F1", "broker connections without an admitted client", abs(_count(arm, CONNECTS) - let_in_by_count), 0, ""),
            Figure("F1", "held at once", held, 1_024, ""),
            Figure(
                "F1",
                f"connect and first answer for another address, p99, without the storm {ms(p99(calm)):.1f} ms",
                ms(p99(beside)),
                50,
                "ms",
            ),
        ]


def f2_storm_of_many(folder: Path) -> list[Figure]:
    """2,000 connections a second from 2,000 addresses, against a limit of the process: memory, and how soon the proxy recovers."""
    with _paced(folder, f"[connections]\nmax_connection_creation_rate = {PROCESS_RATE}\n") as crowd:
        arm = crowd.arm
        _limit(arm, "<default>", RATE)
        rss, began, before = crowd.rss, time.monotonic(), _count(arm, CONNECTS)
        storm = Storm(arm.port, MANY)
        time.sleep(STORM_SECONDS)
        let_in, elapsed = _count(arm, CONNECTS) - before, time.monotonic() - began
        storm.stop()
        over = time.monotonic()
        with Client(arm.port) as client:
            client.ask(api_versions_request(3).whole())
        recovered = time.monotonic() - over
        time.sleep(1)
        return [
            Figure(
                "F2",
                f"let in of {storm.attempts:,}, the burst of one second left out",
                (let_in - PROCESS_RATE) / elapsed,
                PROCESS_RATE * 1.05,
                "/s",
            ),
            Figure("F2", "addresses with a rate", _count(arm, "kafka_sluice_tracked_ips"), 65_536, ""),
            Figure("F2", "memory growth", (crowd.rss - rss) / MIB, 32, "MiB"),
            Figure("F2", "a new client is served after the storm", recovered, 2, "s"),
        ]


@contextmanager
def _paced(folder: Path, settings: str = "") -> Iterator[Crowd]:
    """Start Sluice with two samples of a second, so that a rate of N admits N at once."""
    config = folder / "storm.toml"
    config.write_text(f"[quotas]\nwindow_num = 2\n{settings}")
    with crowded(folder, flags=["--config", str(config)]) as crowd:
        yield crowd


def _limit(arm: Arm, ip: str, rate: int) -> None:
    """Set a rate of an address in the quota file, and wait until it is in force."""
    entries = _count(arm, "kafka_quota_config_entries")
    with arm.quotas.open("a") as file:
        file.write(f'\n[[quota]]\nip = "{ip}"\nconnection_creation_rate = {rate}\n')
    deadline = time.monotonic() + 10
    while _count(arm, "kafka_quota_config_entries") == entries:
        if time.monotonic() > deadline:
            raise RuntimeError("the quota file was not read")
        time.sleep(0.1)


def _probe(arm: Arm, seconds: float) -> tuple[list[float], float]:
    """Connect from another address and send one request, repeatedly; return the time of each, and the largest number of held sockets."""
    times: list[float] = []
    held, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        with Client(arm.port) as client:
            client.ask(api_versions_request(3).whole())
        times.append(time.monotonic() - began)
        if len(times) % 20 == 0:
            held = max(held, _count(arm, HELD))
        time.sleep(1 / PROBES_PER_SECOND)
    return times, held


def _count(arm: Arm, metric: str, reason: str | None = None) -> float:
    return (arm.metric(metric) if reason is None else arm.metric(metric, f'reason="{reason}"')) or 0.0


ROWS: dict[str, Callable[[Path], list[Figure]]] = {"F1": f1_storm_of_one, "F2": f2_storm_of_many}
