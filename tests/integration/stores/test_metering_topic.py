"""The second sink: complete file sets pass through a topic, at least once each, and arrive byte for byte."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metering_format.places import PART_HEADER, PATH_HEADER, SEGMENTS
from pipeline.manifest import find_manifests, problems_of
from pipeline.stream.chunks import PARTS, Parts, assemble, checked_place
from pipeline.validation.local import validate
from proxy.base.host_port import read_host_port
from proxy.config.kafka_client import kafka_client_settings
from proxy.config.model import Upstream
from proxy.demo.mock_cluster import MockCluster
from proxy.metering.topic import TopicSink
from proxy.telemetry.counters import MeteringCounts
from tests.support.clients import confluent
from tests.support.metering.metering_writer_fixture import MeteringWriterFixture
from tests.support.ports import free_port_range

SETTLED_S = 30


def file_sets(directory: Path, count: int) -> None:
    """Write one run with this many file sets, each marked for the topic."""
    proxy = MeteringWriterFixture(directory, publish=True)
    proxy.writer.start()
    for number in range(count):
        proxy.play(2_000, number)
        proxy.meter.flush()
        proxy.writer.rotate()
    assert proxy.writer.stop(60)


def reach(bootstrap: str) -> Callable[[], dict[str, Any]]:
    """Return the connection settings of a sink."""
    return functools.partial(kafka_client_settings, Upstream(bootstrap=(read_host_port(bootstrap),)))


def marks(directory: Path) -> list[Path]:
    return sorted((directory / SEGMENTS).glob("*.unpublished"))


def received(bootstrap: str, topic: str, landed: Path) -> int:
    """Assemble the files from the topic; return how many manifests it has."""
    manifests, parts = 0, Parts(landed / PARTS)
    for message in confluent.read_all(bootstrap, topic, 1):
        headers: dict[str, Any] = dict(message.headers() or ())
        path, number, count = checked_place(headers[PATH_HEADER].decode(), headers[PART_HEADER].decode())
        assert message.key() == b"sluice-1"
        parts.put(path, number, message.value() or b"")
        if path.startswith("manifests") and number == count - 1:
            manifests += 1
            assemble(landed, path, {path: count}, parts)
    return manifests


@pytest.mark.mock
def test_file_sets_come_through_a_topic(mock_cluster: MockCluster, tmp_path: Path) -> None:
    """File sets wait while no broker answers, then pass through the topic and validate as exact, and a second copy changes nothing."""
    written, landed, topic = tmp_path / "written", tmp_path / "landed", "metering-files"
    written.mkdir()
    mock_cluster.create_topic(topic, 1)
    file_sets(written, 2)
    kept = {mark: mark.read_text() for mark in marks(written)}
    assert len(kept) == 3
    counts, problems = MeteringCounts(), list[str | None]()
    nowhere = TopicSink(written, "sluice-1", topic, reach(f"127.0.0.1:{free_port_range(1)}"), counts, problems.append)
    nowhere.start()
    deadline = time.monotonic() + SETTLED_S
    while not problems:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert nowhere.stop(SETTLED_S)
    assert (marks(written), counts.file_sets_published, counts.publish_failures > 0) == (sorted(kept), 0, True)
    for _ in range(2):
        for mark, text in kept.items():
            mark.write_text(text)
        sink = TopicSink(written, "sluice-1", topic, reach(mock_cluster.bootstrap.split(",")[0]), counts, problems.append)
        sink.start()
        assert sink.stop(SETTLED_S)
        assert marks(written) == []
    assert counts.file_sets_published == 6
    assert received(mock_cluster.bootstrap, topic, landed) == 6
    assert [one.file_set for one in find_manifests(landed)] == [one.file_set for one in find_manifests(written)]
    assert [problem for one in find_manifests(landed) for problem in problems_of(landed, one)] == []
    verdict = validate(landed)
    assert (verdict.kinds(), verdict.incomplete, verdict.decisions) == ({}, [], 4_000)
