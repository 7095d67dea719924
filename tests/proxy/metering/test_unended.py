"""The decisions of a killed proxy are counted, wherever the kill happened."""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from metering_format.places import SEGMENTS
from pipeline.manifest import find_manifests
from pipeline.validation.local import validate
from proxy.base.files import make_directory
from proxy.meter.batch import Batch
from proxy.meter.buffer import DecisionBuffer, read_abandoned
from proxy.metering.compaction.compact import compact
from proxy.metering.compaction.file_sets import HOUR_MS
from proxy.metering.layout import FACTS_SUFFIX, RAW_SUFFIX, pending_path
from proxy.metering.locks import converting, lock_path, locked
from proxy.metering.repair import repair
from proxy.metering.retention import Retention
from proxy.metering.segment import left_over
from proxy.metering.writer import MeteringWriter, WriterSettings
from tests.support.metering.metering_alone import metering_alone
from tests.support.metering.metering_writer_fixture import RUN, WALL_MS, MeteringWriterFixture
from tests.support.places import ROOT


class Killed:
    """A writer that is killed after it has decided, rotated and decided again."""

    def __init__(self, directory: Path) -> None:
        make_directory(directory / SEGMENTS)
        self.directory = directory
        self.pending = pending_path(directory, RUN["run_id"])
        self.proxy = MeteringWriterFixture(directory, buffer=DecisionBuffer(self.pending), retention=Retention(proxy_id=RUN["proxy_id"]))
        self.proxy.writer.start()
        while not self.proxy.writer.counts.segments:
            time.sleep(0.001)

    def write(self, decisions: int) -> None:
        """Record decisions, and wait until they are in a file set and the next segment has begun."""
        self.proxy.play(decisions, 1)
        self.proxy.meter.flush()
        self.proxy.writer.rotate()
        while self.proxy.writer.counts.segments < 2 or not made(self.directory) or len(self.open_segments()) > 1:
            time.sleep(0.001)
        with converting(self.directory, RUN["proxy_id"]):
            pass  # this conversion has looked for unended runs and will not find this one

    def die(self) -> None:
        """Leave the mapped buffer without an owner, as a kill does, because its lock ends with the process."""
        copy = self.pending.with_suffix(".copy")
        shutil.copy(self.pending, copy)
        copy.rename(self.pending)

    def open_segments(self) -> list[Path]:
        """Return the facts files of open segments."""
        return list((self.directory / SEGMENTS).glob(f"*{FACTS_SUFFIX}"))

    def lose_the_segment(self) -> None:
        """Remove the open segment, as if it had not begun."""
        (facts,) = self.open_segments()
        for path in facts.parent.glob(facts.name.removesuffix(FACTS_SUFFIX) + "*"):
            path.unlink()


@pytest.fixture
def killed(tmp_path: Path) -> Any:
    one = Killed(tmp_path)
    yield one
    one.proxy.writer.stop(10)
    one.pending.unlink(missing_ok=True)


def made(directory: Path) -> int:
    """Return the number of file sets."""
    return len(list(directory.glob("manifests/**/*.json")))


def cut(killed: Killed) -> None:
    (facts,) = killed.open_segments()
    facts.write_bytes(b'{"run":{"run_id"')


@pytest.mark.parametrize("damage", [Killed.lose_the_segment, cut, lambda _killed: None], ids=["none_open", "cut", "open"])
def test_what_was_decided_between_two_segments_is_counted(killed: Killed, damage: Any) -> None:
    """Decisions since the last flush are counted as dropped if the kill finds no complete segment."""
    killed.write(500)
    killed.proxy.play(20, 2)
    damage(killed)
    killed.die()
    done = repair(killed.directory)
    assert (done.problems, len(done.manifests)) == ([], 1)
    last = max(find_manifests(killed.directory), key=lambda one: one.first_seq)
    verdict = validate(killed.directory)
    assert (last.last_seq, last.dropped_decisions, last.truncated, last.final) == (519, 20, True, False)
    assert (verdict.kinds(), verdict.decisions, verdict.dropped) == ({}, 500, 20)
    assert any("20 decisions that could not be written" in line for line in verdict.incomplete)
    assert not killed.pending.exists()
    assert repair(killed.directory).manifests == []


def test_a_killed_run_goes_on_after_a_merged_file_set(killed: Killed) -> None:
    """If the file sets of a run were merged before it is repaired, its last file set follows the last part, and the chain is whole."""
    killed.write(500)
    killed.write(300)
    while made(killed.directory) < 2 or len(killed.open_segments()) > 1:
        time.sleep(0.001)
    assert compact(killed.directory, HOUR_MS * 10**6).after == 1
    killed.proxy.play(20, 3)
    killed.lose_the_segment()
    killed.die()
    assert repair(killed.directory).problems == []
    merged, last = find_manifests(killed.directory)
    verdict = validate(killed.directory)
    assert (last.previous, last.first_seq, last.dropped_decisions) == (merged.merged[-1].file_set, 800, 20)
    assert (verdict.kinds(), verdict.decisions, verdict.dropped) == ({}, 800, 20)
    assert not any("is in no manifest" in line for line in verdict.incomplete), verdict.incomplete


def test_a_segment_of_another_version_stays_and_is_named(killed: Killed) -> None:
    """Repair leaves a segment of another version unchanged and names it in one line."""
    killed.proxy.play(500, 1)
    killed.proxy.meter.flush()
    while killed.proxy.writer.counts.decisions < 500:
        time.sleep(0.001)
    killed.die()
    (file_set,) = left_over(killed.directory)
    raw = killed.directory / SEGMENTS / (file_set + RAW_SUFFIX)
    ours = raw.read_bytes()
    theirs = ours.replace(b"sluice.noted", b"sluice.nomen")
    raw.write_bytes(theirs)
    done = repair(killed.directory)
    assert (done.manifests, len(done.problems)) == ([], 1)
    assert all(word in done.problems[0] for word in (file_set, "another version", "sluice meter repair", "stays as it is"))
    assert raw.read_bytes() == theirs
    raw.write_bytes(ours)
    assert (len(repair(killed.directory).manifests), find_manifests(killed.directory)[0].last_seq) == (1, 499)


def start_another(directory: Path, proxy_id: str) -> None:
    """Start and stop another proxy in the directory."""
    header = {**RUN, "run_id": f"20261121T130000Z-{proxy_id}", "proxy_id": proxy_id}
    settings = WriterSettings(directory, header, retention=Retention(proxy_id=proxy_id))
    writer = MeteringWriter(settings, lambda: WALL_MS, lambda _problem: None)
    writer.start()
    assert writer.stop(60)


def test_the_next_start_counts_it_too(killed: Killed) -> None:
    """The next proxy of the same name counts the decisions of a killed one, and a proxy of another name does not."""
    killed.write(500)
    killed.proxy.play(20, 2)
    killed.lose_the_segment()
    killed.die()
    start_another(killed.directory, "sluice-2")
    assert killed.pending.exists()
    start_another(killed.directory, RUN["proxy_id"])
    assert validate(killed.directory).dropped == 20
    assert not killed.pending.exists()


def test_a_buffer_in_use_is_left_alone(killed: Killed) -> None:
    """The buffer of a running proxy without an open segment survives a repair and the start of another proxy."""
    killed.write(500)
    killed.proxy.play(20, 2)
    killed.lose_the_segment()
    assert repair(killed.directory).manifests == []

    async def other() -> None:
        metering, _ = metering_alone(killed.directory)
        await metering.stop()

    asyncio.run(other())
    assert killed.pending.exists()
    killed.die()
    repair(killed.directory)
    assert validate(killed.directory).dropped == 20


def test_a_buffer_of_a_run_that_ended_goes(killed: Killed) -> None:
    """Repair removes the buffer of a run that has ended."""
    killed.write(500)
    assert killed.proxy.writer.stop(10)
    assert not killed.pending.exists()
    DecisionBuffer(killed.pending).usage_rows(1)
    assert repair(killed.directory).manifests == []
    assert not killed.pending.exists()


def test_a_hand_over_that_is_cut_counts_each_decision_once(tmp_path: Path) -> None:
    """A kill in the middle of a handover counts each decision once."""
    path = Path("/dev/shm") / f"sluice-test-{tmp_path.name}"  # noqa: S108 - where the proxy's buffer is
    buffer = DecisionBuffer(path)
    try:
        found: list[Any] = []

        def take(_batch: Batch) -> bool:
            found.append(read_abandoned(path))
            return True

        proxy = MeteringWriterFixture(tmp_path, buffer=buffer)
        proxy.play(30, 1)
        assert read_abandoned(path) == (30, 0)
        whole = path.read_bytes()
        proxy.meter._hand_over = take
        proxy.meter.flush()
        proxy.play(2, 2)
        numbers = path.read_bytes()[-16:]
        path.write_bytes(whole[:-16] + (~30).to_bytes(8, "little", signed=True) + numbers[8:])
        assert read_abandoned(path) == (30, 0)
        assert found == [(30, 0)]
    finally:
        path.unlink()


def test_required_state_is_kept_through_an_idle_rotation(tmp_path: Path) -> None:
    """A rotation keeps a segment with comparisons only, and restarts an empty one."""
    proxy = MeteringWriterFixture(tmp_path, rotate_ms=1_000)
    proxy.writer.start()
    while not proxy.writer.counts.segments:
        time.sleep(0.001)
    (facts,) = (tmp_path / SEGMENTS).glob(f"*{FACTS_SUFFIX}")
    began = facts.stat().st_size
    proxy.now_ms += 5_000
    while facts.stat().st_size == began:
        time.sleep(0.001)
    proxy.meter.compared("Produce", None, None, 100, 50, proxy.now_ms)
    proxy.meter.flush()
    proxy.now_ms += 5_000
    while proxy.writer.counts.segments < 2:
        time.sleep(0.001)
    assert proxy.writer.stop(10)
    first, *_ = sorted(find_manifests(tmp_path), key=lambda one: one.part)
    assert [entry.rows for entry in first.files if entry.table == "comparisons"] == [1]
    assert first.first_ts_ms == WALL_MS + 6_000


def test_a_segment_that_cannot_begin_leaves_nothing(tmp_path: Path) -> None:
    """A segment whose header cannot be written leaves no file."""
    script = f"""
import resource
from pathlib import Path
from proxy.metering.segment import SegmentWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    SegmentWriter(Path({str(tmp_path)!r}) / "stem", [{{"run": {{"run_id": "x" * 500}}}}])
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "27"
    assert list(tmp_path.iterdir()) == []


def test_what_was_half_written_beside_segments_goes(killed: Killed) -> None:
    """A temporary header file is no segment, and repair removes it."""
    killed.write(500)
    killed.proxy.play(20, 2)
    killed.lose_the_segment()
    halves = [killed.directory / SEGMENTS / f".tmp-{RUN['run_id']}-{seq:016d}.facts.open" for seq in (500, 700)]
    for half in halves:
        half.write_bytes(b'{"run":{')
    assert left_over(killed.directory) == []
    killed.die()
    done = repair(killed.directory)
    assert (done.problems, done.empty, done.temporaries, [half.exists() for half in halves]) == ([], 0, 1, [False, False])
    assert validate(killed.directory).dropped == 20


def test_one_converts_at_a_time(tmp_path: Path) -> None:
    """A conversion waits until another one of the same proxy has ended."""
    proxy = MeteringWriterFixture(tmp_path, retention=Retention(proxy_id=RUN["proxy_id"]))
    make_directory(tmp_path / SEGMENTS)
    proxy.writer.start()
    with converting(tmp_path, RUN["proxy_id"]):
        proxy.play(500, 1)
        proxy.meter.flush()
        proxy.writer.rotate()
        while proxy.writer.counts.segments < 2:
            time.sleep(0.001)
        time.sleep(0.2)
        assert made(tmp_path) == 0
    assert proxy.writer.stop(10)
    assert validate(tmp_path).decisions == 500


def test_a_lock_goes_with_who_holds_it(tmp_path: Path) -> None:
    """A lock is free again when its holder releases it."""
    (tmp_path / SEGMENTS).mkdir()
    path = lock_path(tmp_path, "edge-1")
    with locked(path) as mine, locked(path) as theirs:
        assert (mine, theirs) == (True, False)
    with locked(path) as free:
        assert free
