"""How much memory can clients occupy that try to exhaust it?

python -m bench.exhaustion [--seconds 8] [--attack NAME]... [--cgroup-mib 512] [--no-write]

A real `sluice run` with its defaults is in front of the stub broker, restarted for each attack, and there is one run of all attacks
together. Attackers reconnect whenever they are closed. The bench samples resident memory and `kafka_sluice_buffered_bytes`, while one
client sends a Produce of 1 kB every 5 ms. The goals are a resident memory of at most 150 MiB above `limits.process_buffer_bytes_max`, and,
during any single attack, a p99 of that client of at most 10 ms; its p99 before the attack is printed as well, since all share the machine.
Where possible Sluice runs in a memory control group of `--cgroup-mib`; then its peak, that of its sockets, and the number of killed
processes are printed. Version 1 limits sockets separately, so they get three eighths of the limit and the process the rest. The exit code
is 1 when a goal is missed or a process was killed.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.attacks.__main__ import P99_MAX_MS, Victim, share_ms
from bench.exhaustion.attacks import ATTACKS, LARGE_METADATA_VERSION, SASL_HANDSHAKE
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import HOST, ROOT, Child, Engine, rss_bytes
from bench.harness.frames import METADATA, Template, metadata_answer
from bench.harness.report import Report, machine_lines
from tests.support.ports import free_port

MIB = 1 << 20
ABOVE_LIMIT_BYTES = 150 * MIB
METADATA_BYTES = 50_000_000
OPEN_FILES = 20_000
SAMPLE_S, METRIC_EVERY = 0.1, 10
ALL = "all at once"
SOCKETS_SHARE = 3 / 8
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@dataclass
class Group:
    """A memory control group in which a process can be started."""

    folder: Path
    is_v2: bool

    @property
    def procs(self) -> Path:
        """The file to which a process writes its id to enter the group."""
        return self.folder / "cgroup.procs"

    @property
    def peak_bytes(self) -> int:
        """The largest charge of the group; in v1 without sockets."""
        return int((self.folder / ("memory.peak" if self.is_v2 else "memory.max_usage_in_bytes")).read_text())

    @property
    def sockets_peak_bytes(self) -> int:
        """The largest charge of its sockets; in v2 it is part of the peak and not reported separately."""
        return 0 if self.is_v2 else int((self.folder / "memory.kmem.tcp.max_usage_in_bytes").read_text())

    @property
    def killed(self) -> int:
        """How many of its processes the kernel has killed for lack of memory."""
        text = (self.folder / ("memory.events" if self.is_v2 else "memory.oom_control")).read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))


@contextmanager
def control_group(limit_bytes: int) -> Iterator[Group | None]:
    """Make a group with this limit, sockets included; None where that is not possible."""
    is_v2 = "memory" in _words(V2 / "cgroup.controllers")
    folder = (V2 if is_v2 else V1) / f"sluice-bench-{os.getpid()}"
    try:
        folder.mkdir()
        try:
            if is_v2:
                (folder / "memory.max").write_text(str(limit_bytes))
            else:
                sockets_bytes = int(SOCKETS_SHARE * limit_bytes)
                (folder / "memory.limit_in_bytes").write_text(str(limit_bytes - sockets_bytes))
                (folder / "memory.kmem.tcp.limit_in_bytes").write_text(str(sockets_bytes))
            group = Group(folder, is_v2)
            _ = (group.peak_bytes, group.sockets_peak_bytes, group.killed)
        except OSError:
            folder.rmdir()
            raise
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    for _ in range(50):
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


class Watch(threading.Thread):
    """Samples a running proxy repeatedly."""

    def __init__(self, arm: Arm) -> None:
        super().__init__(daemon=True)
        self._arm = arm
        self._ended = threading.Event()
        self.rss_bytes = 0
        self.buffered_bytes = 0.0

    def run(self) -> None:
        """Record the largest values."""
        looks = 0
        while not self._ended.wait(SAMPLE_S):
            with suppress(OSError):
                self.rss_bytes = max(self.rss_bytes, rss_bytes(self._arm.pids()))
                looks += 1
                if looks % METRIC_EVERY == 0:
                    self.buffered_bytes = max(self.buffered_bytes, self._arm.metric("kafka_sluice_buffered_bytes") or 0)

    def stop(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self.join()


def large_answers(port: int) -> list[Template]:
    """Return further answers of the stub broker: Metadata of 50 MB in one version, and acceptance of every mechanism."""
    metadata = metadata_answer(LARGE_METADATA_VERSION, HOST, port).whole()
    size = (len(metadata) - 4 + METADATA_BYTES).to_bytes(4, "big")
    handshake = bytes(4) + bytes(2) + bytes(4)
    return [
        Template(METADATA, LARGE_METADATA_VERSION, size + metadata[4:], METADATA_BYTES, b""),
        Template(SASL_HANDSHAKE, 1, len(handshake).to_bytes(4, "big") + handshake, 0, b""),
    ]


def run_row(name: str, engine: Engine, options: argparse.Namespace, report: Report) -> bool:
    """Measure one row; return whether the goal was met."""
    with ExitStack() as stack:
        port = free_port()
        broker, _ = engine.stub(1_000, large_answers(port), port)
        stack.callback(broker.stop)
        group = stack.enter_context(control_group(options.cgroup_mib * MIB))
        arm = start_sluice(port, engine.folder, open_files=OPEN_FILES, enter=None if group is None else group.procs)
        stack.callback(arm.stop)
        victim = Victim(arm.port)
        stack.callback(victim.close)
        victim.run(0.5)
        calm = victim.run(options.seconds / 4)
        watch = Watch(arm)
        watch.start()
        names = list(ATTACKS) if name == ALL else [name]
        attackers = [Child([sys.executable, "-m", "bench.exhaustion.attacks", one, str(arm.port)]) for one in names]
        try:
            beside = victim.run(options.seconds)
        finally:
            for attacker in attackers:
                attacker.stop()
            watch.stop()
        limit = arm.metric("kafka_sluice_buffer_limit_bytes") or 0
        ended = arm.metric("kafka_sluice_closes_total", 'reason="buffer_limit"') or 0
        killed = 0 if group is None else group.killed
        p99_ms = share_ms(beside, 0.99)
        met = watch.rss_bytes <= limit + ABOVE_LIMIT_BYTES and not killed and (name == ALL or p99_ms <= P99_MAX_MS)
        figures = {
            "rss_mib": watch.rss_bytes / MIB,
            "above_limit_mib": (watch.rss_bytes - limit) / MIB,
            "buffered_mib": watch.buffered_bytes / MIB,
            "ended_for_room": ended,
            "group_peak_mib": None if group is None else group.peak_bytes / MIB,
            "sockets_peak_mib": None if group is None else group.sockets_peak_bytes / MIB,
            "killed": None if group is None else killed,
            "calm_p99_ms": share_ms(calm, 0.99),
            "p99_ms": p99_ms,
        }
    cells = " | ".join("-" if figure is None else f"{figure:,.0f}" for figure in figures.values())
    report.add(f"| {name} | {cells} | {'ok' if met else 'miss'} |")
    report.data.setdefault("rows", {})[name] = figures
    print(report.text().splitlines()[-1], flush=True)
    return met


def main() -> int:
    """Run the rows; print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of each row")
    parser.add_argument("--attack", action="append", choices=[*ATTACKS, ALL], help="one row; may be repeated")
    parser.add_argument("--cgroup-mib", type=int, default=512, help="limit of the control group; default 512")
    parser.add_argument("--no-write", action="store_true", help="write no result file")
    options = parser.parse_args()
    report = Report("exhaustion")
    report.add(*machine_lines(), "")
    report.add("MiB, and p99 in ms of a client that sends a Produce of 1 kB every 5 ms, before the attack and beside it.", "")
    columns = "RSS | above the limit | buffered | ended for room | group | sockets | killed | p99 before | p99"
    report.add(f"| attack | {columns} | |", "|---|" + "--:|" * 9 + "---|")
    print(report.text(), flush=True)
    engine = Engine(python_only=True)
    try:
        met = [run_row(name, engine, options, report) for name in options.attack or [*ATTACKS, ALL]]
    finally:
        engine.close()
    if not options.no_write:
        for path in report.write(ROOT / "bench" / "results" / "attacks"):
            print(f"written: {path.name}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
