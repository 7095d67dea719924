"""A segment outlives the version of Sluice that wrote it."""

import shutil
import time
from pathlib import Path

from pipeline.manifest import find_manifests
from proxy.metering.layout import RAW_SUFFIX, SEGMENTS, make_directory
from proxy.metering.repair import repair
from proxy.metering.segment import left_over
from tests.support.metering_writer_house import WriterHouse

DECISIONS = 1_000


def left_by_a_kill(directory: Path) -> Path:
    """A directory with one segment that nobody ended."""
    make_directory(directory / "lives" / SEGMENTS)
    house = WriterHouse(directory / "lives")
    house.writer.start()
    house.play(DECISIONS, 1)
    house.meter.flush()
    while house.writer.counts.decisions < DECISIONS:
        time.sleep(0.001)
    shutil.copytree(directory / "lives", directory / "left")
    house.writer.stop(10)
    return directory / "left"


def test_a_segment_of_another_version_stays_and_is_named(tmp_path: Path) -> None:
    """What was noted in another way is not guessed at: one line says whose work it is, and nothing of it is lost."""
    directory = left_by_a_kill(tmp_path)
    (stem,) = left_over(directory)
    raw = directory / SEGMENTS / (stem + RAW_SUFFIX)
    ours = raw.read_bytes()
    theirs = ours.replace(b"sluice.noted", b"sluice.nomen")
    raw.write_bytes(theirs)
    done = repair(directory)
    assert (done.manifests, len(done.problems)) == ([], 1)
    assert all(word in done.problems[0] for word in (stem, "another version", "sluice meter repair", "stays as it is"))
    assert raw.read_bytes() == theirs
    raw.write_bytes(ours)
    assert (len(repair(directory).manifests), find_manifests(directory)[0].last_seq) == (1, DECISIONS - 1)
