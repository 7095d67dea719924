"""From decisions on the event loop to files that the validator accepts, without sockets."""

import asyncio
import os
import stat
from pathlib import Path

import msgspec
import pytest

from pipeline.file_set import FileSet
from pipeline.manifest import find_manifests, problems_of
from pipeline.validation.local import validate
from proxy.meter.usage import Place
from proxy.metering.repair import repair
from proxy.metering.segment import left_over
from proxy.metering.writer import WAITING_BYTES_MAX, MeteringWriter, WriterSettings
from proxy.telemetry.client_usage import OTHER, Usage
from quota.entity import ANONYMOUS
from tests.support.metering.metering_alone import LISTENER, metering_alone
from tests.support.metering.metering_writer_fixture import RUN, WALL_MS, MeteringWriterFixture


@pytest.mark.parametrize("level", ["packed", "trace"])
def test_what_was_decided_is_what_can_be_worked_out_again(tmp_path: Path, level: str) -> None:
    """The validator finds three file sets of one run exact and complete although bounds change in between."""
    proxy = MeteringWriterFixture(tmp_path, header={"level": level})
    proxy.writer.start()
    for part in range(3):
        proxy.play(6_000, part)
        proxy.groups[0].update_bound(5_000.0 * (part + 1))
        proxy.play(1_000, part)
        proxy.meter.flush()
        proxy.writer.rotate()
        proxy.groups[1].update_bound(9_000.0 * (part + 1))
    proxy.play(10, 9)
    proxy.meter.flush()
    assert proxy.writer.stop(60)
    verdict = validate(tmp_path)
    assert (verdict.kinds(), verdict.incomplete, verdict.coverage_percent) == ({}, [], 100.0)
    assert verdict.decisions == 21_010
    assert [problem for manifest in find_manifests(tmp_path) for problem in problems_of(tmp_path, manifest)] == []
    assert left_over(tmp_path) == []


def test_what_is_written_is_for_owner_and_group_only(tmp_path: Path) -> None:
    """Created directories have mode 0750 and files mode 0640."""
    directory = tmp_path / "missing" / "metering"
    before = os.umask(0o022)
    try:
        asyncio.run(_metered(directory))
    finally:
        os.umask(before)
    assert find_manifests(directory)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (directory.parent, *directory.parent.rglob("*"))}
    assert {path for path, mode in found.items() if mode != (0o750 if path.is_dir() else 0o640)} == set()


async def _metered(directory: Path) -> None:
    """Meter one decision and the usage of one client."""
    metering, group = metering_alone(directory)
    group.record(100, 5)
    metering.meter.record(group, 100, 0, 0, 5, 1, 0)
    metering.meter.usage.cell(Place(("b", 1), LISTENER), Usage("", "etl"), ANONYMOUS, "produce", Usage(OTHER, OTHER)).requests += 3
    await metering.stop()


@pytest.mark.parametrize("limit", [{"rotate_decisions": 5_000}, {"rotate_bytes": 20_000}])
def test_a_segment_that_is_large_enough_becomes_a_file_set(tmp_path: Path, limit: dict[str, int]) -> None:
    """A segment is rotated by its number of decisions or by its bytes."""
    proxy = MeteringWriterFixture(tmp_path, **limit)
    proxy.writer.start()
    for seed in range(6):
        proxy.play(3_000, seed)
        proxy.meter.flush()
    assert proxy.writer.stop(60)
    found = [manifest.last_seq - manifest.first_seq + 1 for manifest in find_manifests(tmp_path) if manifest.counts]
    assert (len(found) > 1, sum(found), max(found) < 18_000) == (True, 18_000, True)
    if "rotate_decisions" in limit:
        assert found == [6_000] * 3
    verdict = validate(tmp_path)
    assert (verdict.kinds(), verdict.incomplete, verdict.decisions) == ({}, [], 18_000)


def test_what_there_was_no_room_for_at_the_end_is_counted(tmp_path: Path) -> None:
    """Decisions that were refused before the last batch are counted as dropped."""
    proxy = MeteringWriterFixture(tmp_path, waiting_bytes_max=0)
    proxy.writer.start()
    proxy.play(300, 1)
    proxy.meter.flush()
    proxy.play(20, 2)
    proxy.meter.finish(proxy.writer.hand_over_last)
    assert proxy.writer.stop(60)
    verdict = validate(tmp_path)
    assert (verdict.kinds(), verdict.dropped, verdict.unjudged) == ({}, proxy.meter.dropped, 20)
    assert any("300 decisions that could not be written" in line for line in verdict.incomplete)


def test_metering_that_ends_while_too_much_waits_loses_nothing_unsaid(tmp_path: Path) -> None:
    """Usage and decisions are written at the end although the queue is full."""

    async def met() -> None:
        metering, group = metering_alone(tmp_path)
        metering.writer.counts.handed_bytes += WAITING_BYTES_MAX  # as with a slow disk
        group.record(100, 5)
        metering.meter.record(group, 100, 0, 0, 5, 1, 0)
        metering.meter.usage.cell(Place(("b", 1), LISTENER), Usage("", "etl"), ANONYMOUS, "produce", Usage(OTHER, OTHER)).requests += 3
        await metering.stop()

    asyncio.run(met())
    [manifest] = find_manifests(tmp_path)
    verdict = validate(tmp_path)
    assert (verdict.decisions, verdict.dropped, manifest.usage.requests) == (1, 0, 3)


def test_what_a_reload_cannot_change_is_not_said_to_have_changed(tmp_path: Path) -> None:
    """After a reload `states` has the new delay and the old window, which only a restart changes."""

    async def reloaded() -> None:
        metering, _ = metering_alone(tmp_path)
        limits = msgspec.structs.replace(metering._config.quotas, window_num=7, window_size_seconds=2)
        enforcement = msgspec.structs.replace(metering._config.enforcement, delay_max_ms=100)
        metering.settings_changed(msgspec.structs.replace(metering._config, quotas=limits, enforcement=enforcement))
        await metering.stop()

    asyncio.run(reloaded())
    [manifest] = find_manifests(tmp_path)
    states = FileSet(tmp_path, manifest).read("states").to_pylist()
    assert [(state["num_samples"], state["window_ms"], state["delay_max_ms"]) for state in states] == [(11, 1_000, 5_000), (11, 1_000, 100)]


def test_a_file_set_without_decisions_is_missed(tmp_path: Path) -> None:
    """The validator reports a deleted file set that had usage only."""
    proxy = MeteringWriterFixture(tmp_path)
    proxy.writer.start()
    for part in range(4):
        if part % 3 == 0:
            proxy.play(500, part)
        client = {"client_ref": 0, "principal_type": "User", "name_form": "plain", "principal": "alice", "client_id": "etl"}
        proxy.meter.add_fact({"client": client})
        proxy.meter.add_fact({"usage": {"second_ms": WALL_MS, "rows": [(0, 1, "1", "main", "produce", *[1] * 10)]}})
        proxy.meter.flush()
        proxy.writer.rotate()
    assert proxy.writer.stop(60)
    manifests = find_manifests(tmp_path)
    assert [bool(one.counts) for one in manifests] == [True, False, False, True, False]
    assert validate(tmp_path).incomplete == []
    [path] = (tmp_path / "manifests").rglob(f"{manifests[2].file_set}.json")
    path.unlink()
    [line] = validate(tmp_path).incomplete
    assert f"{manifests[2].file_set}, the file set before {manifests[3].file_set}" in line


def test_batches_that_nothing_explains_are_left_out(tmp_path: Path) -> None:
    """Repair keeps the batches whose groups are known and drops the others."""
    proxy = MeteringWriterFixture(tmp_path)
    proxy.writer.start()
    for seed, last in ((1, 4), (2, 5)):
        groups, proxy.groups = proxy.groups, proxy.groups[:last]
        proxy.play(3_000, seed)
        proxy.meter.flush()
        proxy.groups = groups
        while proxy.writer.counts.waiting_bytes:
            pass
    facts = next((tmp_path / "segments").glob("*.facts.open"))
    lines = facts.read_bytes().splitlines(keepends=True)
    fifth = next(at for at, line in enumerate(lines) if line.startswith(b'{"group"') and b"c4" in line)
    facts.write_bytes(b"".join(lines[:fifth]) + lines[fifth][:20])
    done = repair(tmp_path)
    assert (len(done.manifests), done.problems) == (1, [])
    verdict = validate(tmp_path)
    assert (verdict.kinds(), verdict.decisions) == ({}, 3_000)
    assert any("put together after a crash" in line for line in verdict.incomplete)


def test_a_crash_leaves_whole_batches(tmp_path: Path) -> None:
    """A segment that is cut in a batch gives an exact file set of the batches before."""
    proxy = MeteringWriterFixture(tmp_path)
    proxy.writer.start()
    proxy.play(20_000, 1)
    proxy.meter.flush()
    while proxy.writer.counts.decisions < 20_000:
        pass
    raw = next((tmp_path / "segments").glob("*.arrows.open"))
    raw.write_bytes(raw.read_bytes()[: -raw.stat().st_size // 10])
    second = MeteringWriter(WriterSettings(tmp_path, {**RUN, "run_id": "20261121T130000Z-0a1b2c3d"}), lambda: 0, lambda _problem: None)
    second.start(left_over(tmp_path))
    assert second.stop(60)
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}
    assert any("put together after a crash" in line for line in verdict.incomplete)
    assert 10_000 < verdict.decisions < 20_000
