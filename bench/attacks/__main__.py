"""The latency of other clients while one client sends frames that take long to process.

python -m bench.attacks [--seconds 6] [--attack NAME]... [--no-write]

A real `sluice run` is in front of the stub broker, with quotas on bytes and on controller mutations that are not reached; where an attack
waits for a quota, it paces each client-id. One client sends
a Produce of 1 kB every 5 ms, each after the answer to the previous one: first alone, then during each attack, whose connections send
without a pause from a child process. The goal is a p99 of its answers of at most 10 ms, none lost and none out of order. The p99 of the
same client just before the attack is printed as well, since both peers and the attackers share the machine with the proxy.
`bench.micro_long_frames` measures the same without sockets, in CPU time.
"""

import argparse
import socket
import struct
import sys
import time

from bench.attacks.frames import ATTACKER, MAKERS, attack
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import HOST, ROOT, Child, Engine
from bench.harness.frames import produce_request
from bench.harness.report import Report, machine_lines

CONNECTIONS = 4
GAP_S = 0.005
P99_MAX_MS = 10.0
RECORD_BYTES = 1_000
WARM_UP_S = 0.5
CONNECT_S = 0.001
PACED_BYTES_PER_SECOND = 1e6
"""The quota of each client-id where an attack waits for it; the measured client sends a fifth of it."""


class Victim:
    """One client that produces at a constant pace, in order, and measures the time of each answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = bytearray(produce_request(13, filler=RECORD_BYTES, client_id="victim").whole())
        self._number = 0

    def ask(self) -> float:
        """Send one request; return the seconds until its answer.

        Raises:
            RuntimeError: the request was lost, or the answer belongs to another one.
        """
        self._number += 1
        struct.pack_into(">i", self._request, 8, self._number)
        began = time.perf_counter()
        self._socket.sendall(self._request)
        answer = self._exactly(int.from_bytes(self._exactly(4)))
        took = time.perf_counter() - began
        if int.from_bytes(answer[:4]) != self._number:
            raise RuntimeError(f"request {self._number} was answered by {answer[:4].hex()}")
        return took

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise RuntimeError("the connection ended")
            data += part
        return data

    def run(self, seconds: float) -> list[float]:
        """Send requests repeatedly; return the seconds that each answer took."""
        times = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            times.append(self.ask())
            time.sleep(GAP_S)
        return times

    def close(self) -> None:
        self._socket.close()


class Attackers(Child):
    """The child process that attacks."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__([sys.executable, "-m", "bench.attacks.app", str(port), name, str(CONNECTIONS)])
        self.answers = self.ended = 0

    def stop(self) -> None:
        """End the process; its counts are known afterwards."""
        self.process.stdin.close()
        self.answers, self.ended = map(int, self.process.stdout.readline().split())
        super().stop()


def share_ms(times: list[float], share: float) -> float:
    """Return the time in ms within which this share of the answers arrived."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))] * 1_000


def run_attack(name: str, engine: Engine, seconds: float, report: Report) -> bool:
    """Measure one attack; return whether the goal was met."""
    what = attack(name)
    broker, port = engine.stub(RECORD_BYTES, [what.answer] if what.answer else [])
    arm = _start_paced(port, engine) if what.addresses else start_sluice(port, engine.folder)
    try:
        _limit_mutations(arm)
        victim = Victim(arm.port)
        victim.run(WARM_UP_S)
        calm = victim.run(seconds / 2)
        attackers = Attackers(arm.port, name)
        time.sleep(WARM_UP_S + what.addresses * CONNECT_S)
        beside = victim.run(seconds)
        attackers.stop()
        victim.close()
    finally:
        arm.stop()
        broker.stop()
    p99 = share_ms(beside, 0.99)
    met = p99 <= P99_MAX_MS
    figures = f"{share_ms(calm, 0.99):.1f} | {share_ms(beside, 0.5):.1f} | {p99:.1f} | {max(beside) * 1_000:.1f} | {len(beside):,}"
    report.add(f"| {name} | {attackers.answers:,} | {attackers.ended:,} | {figures} | {'ok' if met else 'miss'} |")
    report.data.setdefault("attacks", {})[name] = {"calm_p99_ms": share_ms(calm, 0.99), "p99_ms": p99, "max_ms": max(beside) * 1_000}
    print(report.text().splitlines()[-1], flush=True)
    return met


def _start_paced(port: int, engine: Engine) -> Arm:
    """Start a proxy that paces each client-id."""
    configuration = engine.folder / "paced.toml"
    configuration.write_text('[quotas]\npacing = "paced"\n')
    return start_sluice(port, engine.folder, produce=PACED_BYTES_PER_SECOND, fetch=None, flags=["--config", str(configuration)])


def _limit_mutations(arm: Arm) -> None:
    """Give the attackers a mutation quota that they do not reach, so that their requests are counted; wait until it is in force."""
    before = arm.metric("kafka_quota_config_entries")
    with arm.quotas.open("a") as file:
        file.write(f'\n[[quota]]\nclient-id = "{ATTACKER}"\ncontroller_mutation_rate = 100000000\n')
    deadline = time.monotonic() + 10
    while arm.metric("kafka_quota_config_entries") == before:
        if time.monotonic() > deadline:
            raise RuntimeError("the quota file was not read")
        time.sleep(0.1)


def main() -> None:
    """Run the attacks; print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each attack")
    parser.add_argument("--attack", action="append", choices=list(MAKERS), help="one attack; may be repeated")
    parser.add_argument("--no-write", action="store_true", help="write no result file")
    options = parser.parse_args()
    report = Report("attacks")
    report.add(*machine_lines(), "")
    report.add("p99 and others in ms of a client that sends a Produce of 1 kB every 5 ms; goal: p99 at most 10 ms, nothing lost.", "")
    report.add("| attack | answers | ended | p99 before | p50 | p99 | longest | requests | |", "|---|---|---|---|---|---|---|---|---|")
    print(report.text(), flush=True)
    engine = Engine()
    try:
        met = [run_attack(name, engine, options.seconds, report) for name in options.attack or MAKERS]
    finally:
        engine.close()
    if not options.no_write:
        report.write(ROOT / "bench" / "results" / "attacks")
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
