"""Rows C1 to C5 of metering: a full disk, a blocked writer, a kill at any moment, complete counts, and a wall clock that jumps."""

import asyncio
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import proxy.metering.metering as metering_module
from metering_format.manifest import Manifest
from pipeline.manifest import find_manifests, problems_of
from pipeline.validation.local import validate
from proxy.metering.repair import repair
from tests.support.metering import disk_full, killed_writer
from tests.support.metering.metering_writer_fixture import MeteringWriterFixture
from tests.support.places import ROOT

NO_NAMESPACE = "unshare failed"
KILLS = int(os.environ.get("SLUICE_KILLS", "10"))
"""Kills of row C3; 200 in a long run."""
FLUSH_S = 0.25


@pytest.mark.filterwarnings("default::tests.support.metering.disk_full.StandInWarning")
def test_c1_a_full_disk_is_waited_for_and_what_has_no_room_is_counted(tmp_path: Path) -> None:
    """Row C1: after a full disk writing resumes within 10 s, and drops are counted; without a mount namespace the test only warns."""
    done = filled(tmp_path, "tmpfs", "unshare", "--mount", "--map-root-user") if disk_full.has_unshare() else None
    if done is None or NO_NAMESPACE in done.stderr or done.returncode == disk_full.NO_TMPFS:
        reported = "row C1: no mount namespace here, so RLIMIT_FSIZE and /dev/full stand in for a full disk"
        warnings.warn(reported, disk_full.StandInWarning, stacklevel=1)
        return
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", disk_full.STAND_INS)
def test_c1_what_stands_in_for_a_full_disk_gives_the_same(tmp_path: Path, kind: str) -> None:
    """Where no mount namespace can be made, a limit on file sizes and a full device give the result of a full disk."""
    done = filled(tmp_path, kind)
    assert done.returncode == 0, done.stdout + done.stderr


def filled(directory: Path, kind: str, *within: str) -> subprocess.CompletedProcess[str]:
    command = [*within, sys.executable, "-m", "tests.support.metering.disk_full", str(directory), kind]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_c2_a_sink_that_hangs_delays_no_client(tmp_path: Path) -> None:
    """Row C2: while the writer blocks, decisions are recorded up to a limit and then counted as dropped; later ones are validated again."""
    stuck, entered = threading.Event(), threading.Event()

    def also(_batch: object) -> None:
        entered.set()
        stuck.wait(30)

    proxy = MeteringWriterFixture(tmp_path, also=also, waiting_bytes_max=1_000_000)
    proxy.writer.start()
    proxy.play(1_000, 0)
    proxy.meter.flush()
    assert entered.wait(30)
    proxy.play(120_000, 1)
    proxy.meter.flush()
    dropped = proxy.meter.dropped
    assert dropped > 50_000
    assert proxy.writer.counts.waiting_bytes <= 1_000_000
    stuck.set()
    while proxy.writer.counts.waiting_bytes:
        time.sleep(0.01)
    proxy.play(60_000, 2)
    proxy.meter.flush()
    assert proxy.writer.stop(60)
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}
    assert verdict.dropped == proxy.writer.counts.dropped_decisions >= dropped  # a slow machine drops more while it writes the rest
    assert verdict.decisions + verdict.unjudged + verdict.dropped == 181_000
    assert 0 < verdict.unjudged < 10_000


def test_c3_a_kill_at_any_moment_leaves_whole_files_and_a_count_of_what_is_lost(tmp_path: Path) -> None:
    """Rows C3 and C4: after kills at random moments every file is valid, and all lost decisions, one flush at most per run, are counted."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.metering.killed_writer"])
    dice, truths, used = random.Random(3), dict[str, int](), dict[str, list[int]]()
    for number in range(KILLS):
        truth, requests = context.RawValue("q", 0), context.RawArray("q", killed_writer.CLIENTS)
        run_id = f"20261121T12{number:04d}Z-0a1b2c3d"
        child = context.Process(target=killed_writer.play, args=(str(tmp_path), run_id, truth, requests, number), daemon=True)
        child.start()
        while not truth.value:
            assert child.is_alive()
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.8))
        child.kill()
        child.join()
        truths[run_id], used[run_id] = truth.value, list(requests)
    done = repair(tmp_path)
    assert done.problems == []
    manifests = find_manifests(tmp_path)
    assert [problem for manifest in manifests for problem in problems_of(tmp_path, manifest)] == []
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}
    found = {run_id: [one for one in manifests if one.run_id == run_id] for run_id in truths}
    for run_id, taken in truths.items():
        accounted = max((one.last_seq + 1 for one in found[run_id]), default=0)
        assert taken <= accounted <= taken + 1, run_id  # the kill may come between the decision and its count here
        assert sum(one.dropped_decisions for one in found[run_id]) <= killed_writer.FLUSH_DECISIONS_MAX
    assert verdict.decisions + verdict.unjudged + verdict.dropped == pytest.approx(sum(truths.values()), abs=KILLS)

    for run_id, requests in used.items():
        last = max(found[run_id], key=lambda one: (one.first_seq, one.part))
        written = [0] * killed_writer.CLIENTS
        for row in usage_rows(tmp_path, found[run_id]):
            written[row["client_ref"]] += row["requests"]
        missing = [mine - its for mine, its in zip(requests, written, strict=True)]
        assert all(-1 <= one <= killed_writer.FLUSH_DECISIONS_MAX for one in missing), run_id
        assert sum(one > 0 for one in missing) <= last.dropped_usage_rows <= killed_writer.CLIENTS
    assert killed_writer.CLIENTS * KILLS >= sum(one.dropped_usage_rows for one in manifests) > 0


def usage_rows(directory: Path, manifests: list[Manifest]) -> Iterator[dict[str, int]]:
    for entry in (entry for one in manifests for entry in one.files if entry.table == "usage"):
        yield from pq.read_table(directory / entry.path, columns=["client_ref", "requests"], partitioning=None).to_pylist()


def test_c5_a_wall_clock_that_steps_moves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row C5: when the wall clock jumps back an hour or ahead a day, the times in the files follow the monotonic clock."""
    steps: Iterator[float] = iter([1_790_000_000.0, 1_790_000_000.0, *[1_789_996_400.0] * 3, *[1_790_086_400.0] * 1_000])
    monkeypatch.setattr(metering_module, "wall_time_s", lambda: next(steps))
    times = asyncio.run(_times(tmp_path))
    assert times == sorted(times)
    assert times[-1] - times[0] < 60_000
    assert validate(tmp_path).kinds() == {}


async def _times(directory: Path) -> list[int]:
    from tests.support.metering.metering_alone import metering_alone

    metering, group = metering_alone(directory)
    times: list[int] = []
    for _ in range(5):
        metering.meter.record(group, 100, 0, 0, metering_module.now_ms(), 1, 0)
        group.record(100, metering_module.now_ms())
        times.append(metering.wall_ms())
        metering.wall_ms()
        await asyncio.sleep(0.01)
    await metering.stop()
    return times
