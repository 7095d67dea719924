"""Metering of workers that share usage, and of a process that does not."""

import asyncio
from pathlib import Path

import pyarrow.parquet as pq

from metering_format.places import SHARED
from metering_format.tables import SHARED_COLUMNS
from pipeline.manifest import find_manifests
from pipeline.validation.local import validate
from proxy.base.clock import now_ms
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ClientQuotaType
from tests.support.metering.metering_alone import metering_alone
from tests.support.metering.metering_writer_fixture import MeteringWriterFixture

SCOPE = "b:1"
"""The scope of the broker of `metering_alone`, whose node id is unknown."""
TAGS = {"user": "", "client-id": "etl"}


def test_metering_notes_what_shared_usage_records(tmp_path: Path) -> None:
    """Usage of another worker is in the samples of its group, and the manifest names the shared segment."""
    segment = Segment.create(2, 16, 11, 1_000)
    other = SharedUsage(segment, 1)

    async def decide() -> str:
        shared = SharedUsage(segment, 0)
        metering, group = metering_alone(tmp_path, shared)
        theirs = other.of_scope(SCOPE).maker(ClientQuotaType.PRODUCE)(TAGS, 1_000.0, num_samples=11, window_ms=1_000)
        for value, later_ms in ((300, 0), (200, 20)):
            at_ms = now_ms() + later_ms
            theirs.record_unchecked(value, at_ms)
            other.publish_all(at_ms)
            group.record(10, at_ms)
            metering.meter.passed(group, 10, at_ms, 1, 0)
        await metering.stop()
        return segment.identity

    identity = asyncio.run(decide())
    (manifest,) = find_manifests(tmp_path)
    assert manifest.schema == 2
    assert manifest.settings[SHARED] == {"segment": identity, "worker": 0, "workers": 2, "numbers": [0, 1]}
    samples = pq.read_table(next(tmp_path.glob("samples/schema=2/**/*.parquet")), partitioning=None).to_pylist()
    assert sum(row["remote_sum"] for row in samples) == 500
    assert [total for row in samples for total in row["remote_total"]][-1] == 500
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}
    assert verdict.incomplete == ["worker 1 of those that share usage is in no file set"]


def test_who_shares_nothing_writes_version_1(tmp_path: Path) -> None:
    """A process that shares no usage writes schema version 1 without the shared columns, at every level."""
    for level in ("sample", "packed", "trace"):
        directory = tmp_path / level
        proxy = MeteringWriterFixture(directory, header={"level": level})
        proxy.writer.start()
        proxy.play(500, 1)
        proxy.meter.flush()
        assert proxy.writer.stop(30)
        assert [manifest.schema for manifest in find_manifests(directory)] == [1]
        paths = list(directory.glob("*/schema=1/**/*.parquet"))
        assert len(paths) >= 4
        for path in paths:
            assert not set(pq.read_schema(path).names) & set(SHARED_COLUMNS.get(path.relative_to(directory).parts[0], ()))
        if level != "sample":
            assert validate(directory).kinds() == {}
