"""The brokers' throttle times beside Sluice's, from the data path into files."""

from pathlib import Path

from pipeline.manifest import find_manifests
from proxy.enforcement.mode import Mode
from proxy.meter import comparisons
from proxy.meter.batch import Batch
from proxy.meter.comparisons import Comparisons
from proxy.meter.meter import Meter
from tests.support.frames.kafka_frames import produce, produced
from tests.support.memory.memory_connection import Peer
from tests.support.memory.metered_fixture import WALL_MS, MeteredFixture
from tests.support.metering.metering_writer_fixture import describe

BOUND = 100.0
ROW = (1, "Produce", None, None, 5, 0)


def shadowing(directory: Path, *, produce: float | None) -> MeteredFixture:
    """Return a proxy before brokers that keep the quotas."""
    proxy = MeteredFixture(directory, produce=produce, mode=Mode.OBSERVE)
    proxy.settings.shadows = True
    return proxy


def produces(peer: Peer, number: int, *, broker_ms: int) -> None:
    peer.asks(produce(number, size=2_000), produced(number, throttle_ms=broker_ms))


def test_what_both_say_of_an_answer_is_a_row(tmp_path: Path) -> None:
    """A response that both throttle gives a row with both times, the group and the client."""
    with shadowing(tmp_path, produce=BOUND) as proxy:
        peer = proxy.connect()
        produces(peer, 1, broker_ms=7)
        reported_ms = proxy.now_ms
        verdict = proxy.written()
    [row] = proxy.rows("comparisons")
    [group] = proxy.rows("dim_group")
    assert (row["quota_type"], row["broker_ms"], row["ts_ms"]) == ("Produce", 7, reported_ms + WALL_MS)
    assert row["sluice_ms"] == verdict.counts["Produce"]["throttle_ms"] > 7
    assert (row["group_ref"], group["tag_client_id"]) == (group["group_ref"], "etl")
    assert [client["client_id"] for client in proxy.rows("dim_client") if client["client_ref"] == row["client_ref"]] == ["etl"]


def test_a_throttle_that_no_quota_here_explains_is_a_row(tmp_path: Path) -> None:
    """A broker's throttle without a quota in Sluice gives a row without a group, and a response without a throttle gives none."""
    with shadowing(tmp_path, produce=None) as proxy:
        peer = proxy.connect()
        produces(peer, 1, broker_ms=0)
        produces(peer, 2, broker_ms=30)
        proxy.written()
    assert [(row["group_ref"], row["broker_ms"], row["sluice_ms"]) for row in proxy.rows("comparisons")] == [(None, 30, 0)]


def test_where_sluice_keeps_the_quotas_nothing_is_compared(tmp_path: Path) -> None:
    """Where Sluice keeps the quotas, a broker's throttle gives no row."""
    with MeteredFixture(tmp_path, produce=BOUND, mode=Mode.OBSERVE) as proxy:
        produces(proxy.connect(), 1, broker_ms=7)
        proxy.written()
    assert proxy.rows("comparisons") == []
    assert [manifest.dropped_comparisons for manifest in find_manifests(tmp_path)] == [0]


def test_there_is_a_bound_and_what_is_beyond_it_is_counted() -> None:
    """Rows beyond `WAITING_MAX` are dropped and counted."""
    kept = Comparisons()
    for _ in range(comparisons.WAITING_MAX + 3):
        kept.add(ROW)
    [fact] = kept.take()
    assert (len(fact["compared"]["rows"]), fact["compared"]["lost"]) == (comparisons.WAITING_MAX, 3)
    assert kept.take() == []


def test_what_no_queue_takes_is_counted_with_the_next() -> None:
    """Rows that the queue refuses are lost, and the next batch reports their number."""
    taken: list[Batch] = []
    has_room = False

    def hand_over(batch: Batch) -> bool:
        if has_room:
            taken.append(batch)
        return has_room

    meter = Meter(hand_over, describe, WALL_MS)
    meter.compared("Produce", None, None, 5, 0, 1)
    meter.flush()
    has_room = True
    meter.compared("Produce", None, None, 6, 0, 2)
    meter.flush()
    [fact] = [fact["compared"] for batch in taken for fact in batch.facts if "compared" in fact]
    assert (fact["lost"], [row[4] for row in fact["rows"]]) == (1, [6])


def test_answers_that_come_together_are_compared_one_by_one(tmp_path: Path) -> None:
    """Responses of one read give a row each."""
    with shadowing(tmp_path, produce=1e9) as proxy:
        peer = proxy.connect()
        produces(peer, 1, broker_ms=0)
        peer.client.arrive(produce(2, size=2_000) + produce(3, size=2_000))
        peer.broker.arrive(produced(2, throttle_ms=5) + produced(3, throttle_ms=6))
        proxy.written()
    assert [(row["broker_ms"], row["sluice_ms"]) for row in proxy.rows("comparisons")] == [(5, 0), (6, 0)]
