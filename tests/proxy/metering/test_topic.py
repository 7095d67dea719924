"""What a sink publishes to the metering topic while files change is checked against a list in place of the broker."""

import asyncio
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from metering_format.places import PART_HEADER, PATH_HEADER, SEGMENTS
from pipeline.manifest import find_manifests, problems_of
from pipeline.stream.chunks import PARTS, Parts, assemble, checked_place
from proxy.meter.usage import PRODUCE, Place
from proxy.metering.facts.names import Names
from proxy.metering.facts.usage_facts import usage_facts
from proxy.metering.forget import forget_user
from proxy.metering.repair import repair
from proxy.metering.topic import TopicSink
from proxy.telemetry.client_usage import OTHER, Usage
from proxy.telemetry.counters import MeteringCounts
from quota.entity import KafkaPrincipal
from tests.support.metering.metering_writer_fixture import WALL_MS, MeteringWriterFixture

SETTLED_S = 20


class Broker:
    """The part of an aiokafka producer that a sink uses."""

    sent: ClassVar[list[tuple[str, str, bytes]]] = []
    takes: ClassVar[int] = 10**6

    def __init__(self, **_settings: Any) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, _topic: str, value: bytes, *, key: bytes, headers: list[tuple[str, bytes]]) -> "asyncio.Future[None]":
        assert key == b"sluice-1"
        if len(self.sent) >= self.takes:
            raise OSError("gone")
        reported = dict(headers)
        self.sent.append((reported[PATH_HEADER].decode(), reported[PART_HEADER].decode(), value))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> type[Broker]:
    """Yield a broker without messages."""
    monkeypatch.setattr(Broker, "sent", [])
    monkeypatch.setattr("aiokafka.AIOKafkaProducer", Broker)
    return Broker


def file_sets(directory: Path, count: int) -> None:
    """Write one run of `count` file sets that name alice and are marked for the topic."""
    proxy = MeteringWriterFixture(directory, publish=True)
    usage, others = Usage("alice", "etl"), Usage(OTHER, OTHER)
    alice = proxy.meter.usage.cell(Place(("b", 1), "default"), usage, KafkaPrincipal("User", "alice"), PRODUCE, others)
    proxy.writer.start()
    for number in range(count):
        proxy.play(500, number)
        alice.requests += 1
        for fact in usage_facts(proxy.meter.usage, Names(), proxy.now_ms + WALL_MS, lambda _address: 1):
            proxy.meter.add_fact(fact)
        proxy.meter.flush()
        proxy.writer.rotate()
    assert proxy.writer.stop(60)


def publish(directory: Path) -> tuple[MeteringCounts, list[str | None]]:
    """Let a sink publish all that it can, and return its counts and problems."""
    counts, problems = MeteringCounts(), list[str | None]()
    sink = TopicSink(directory, "sluice-1", "files", dict, counts, problems.append)
    sink.start()
    assert sink.stop(SETTLED_S)
    return counts, problems


def marks(directory: Path) -> list[Path]:
    return sorted((directory / SEGMENTS).glob("*.unpublished"))


def landed(broker: type[Broker], directory: Path) -> Path:
    parts = Parts(directory / PARTS)
    for path, part, value in broker.sent:
        place, number, count = checked_place(path, part)
        parts.put(place, number, value)
        if path.startswith("manifests") and number == count - 1:
            assemble(directory, place, {place: count}, parts)
    return directory


def test_who_is_forgotten_meanwhile_loses_no_file_set(tmp_path: Path, broker: type[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    """All file sets are published although `forget` renames files in between."""
    written = tmp_path / "written"
    written.mkdir()
    file_sets(written, 2)
    read, pending = Path.read_bytes, ["alice"]

    def read_and_forget(path: Path) -> bytes:
        if path.suffix == ".parquet" and pending:
            forget_user(written, pending.pop())
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_and_forget)
    counts, problems = publish(written)
    assert (counts.file_sets_published, problems, marks(written)) == (len(find_manifests(written)), [], [])
    there = landed(broker, tmp_path / "landed")
    assert find_manifests(there) == find_manifests(written)
    assert [problem for one in find_manifests(there) for problem in problems_of(there, one)] == []


def test_a_file_set_that_cannot_be_read_holds_up_no_other(tmp_path: Path, broker: type[Broker]) -> None:
    """A file set that cannot be read is reported and stays marked, and the others are published."""
    file_sets(tmp_path, 3)
    kept = marks(tmp_path)
    (tmp_path / kept[0].read_text()).write_bytes(b"{")
    (tmp_path / SEGMENTS / "0-x.unpublished").write_bytes(b"manifests/proxy=sluice-1/\0")
    counts, problems = publish(tmp_path)
    assert counts.file_sets_published == len(kept) - 1
    assert marks(tmp_path) == [tmp_path / SEGMENTS / "0-x.unpublished", kept[0]]
    assert len(problems) == 1
    assert "not a manifest" in str(problems[0])


@pytest.mark.parametrize("before", [0, 1, 3])
def test_who_is_killed_while_sending_sends_again(
    tmp_path: Path, broker: type[Broker], monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """After an interruption at any message all file sets are published again and arrive complete."""
    written = tmp_path / "written"
    written.mkdir()
    file_sets(written, 2)
    monkeypatch.setattr(Broker, "takes", before)
    counts, problems = publish(written)
    assert (counts.file_sets_published, len(problems), bool(marks(written))) == (0, 1, True)
    monkeypatch.setattr(Broker, "takes", 10**6)
    publish(written)
    assert marks(written) == []
    there = landed(broker, tmp_path / "landed")
    assert find_manifests(there) == find_manifests(written)
    assert [problem for one in find_manifests(there) for problem in problems_of(there, one)] == []


def test_a_file_set_is_sent_when_it_is_whole(tmp_path: Path, broker: type[Broker]) -> None:
    """A marked file set is published only when its segment is gone."""
    file_sets(tmp_path, 1)
    mark, *_ = marks(tmp_path)
    facts = mark.with_name(mark.name.replace(".unpublished", ".facts.open"))
    facts.write_bytes(b"")
    others = len(marks(tmp_path)) - 1
    assert publish(tmp_path)[0].file_sets_published == others
    facts.unlink()
    assert publish(tmp_path)[0].file_sets_published == 1
    assert marks(tmp_path) == []


def test_what_is_repaired_is_sent_too(tmp_path: Path, broker: type[Broker]) -> None:
    """A file set that is repaired from a segment is published."""
    proxy = MeteringWriterFixture(tmp_path, publish=True)
    proxy.writer.start()
    proxy.play(500, 1)
    proxy.meter.flush()
    while proxy.writer.counts.decisions < 500:
        time.sleep(0.001)
    assert repair(tmp_path).problems == []
    assert publish(tmp_path)[0].file_sets_published == 1
    assert broker.sent
