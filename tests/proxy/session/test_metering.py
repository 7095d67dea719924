"""The data path meters every decision once, with what was applied, and every response as usage."""

from pathlib import Path
from typing import Any

import pytest

from protocol.api_keys import ApiKey
from proxy.enforcement.mode import Mode
from proxy.enforcement.quota_scopes import QuotaWindows
from quota.connections.ip_connections import IpKey
from tests.support.frames.kafka_frames import answered, fetch, plain, produced
from tests.support.memory.memory_connection import BROKER, Peer
from tests.support.memory.metered_fixture import LISTENER, MeteredFixture
from tests.support.memory.verdicts import BOUND, FETCH_VERSION, PRODUCE_VERSION, fetched_of, produce_of
from tests.support.quota_calls import update_rate

PRODUCE_SIZES = [8_000, 3_000, 500, 40, 2_500, 9_000, 100]
FETCH_SIZES = [12_000, 7_000, 300, 4_000]
ADDRESS: IpKey = (1, "10.0.0.7")


def fetches(proxy: MeteredFixture, peer: Peer) -> None:
    """Fetch more than the quota allows, each request as soon as it is forwarded."""
    for number, size in enumerate(FETCH_SIZES, 100):
        peer.sends(fetch(number, version=FETCH_VERSION, max_bytes=10_000))
        while not peer.connection.session.in_flight:
            proxy.wait(500)
        peer.answers(fetched_of(size, number))


def burst(proxy: MeteredFixture, peer: Peer, first: int) -> None:
    """Produce more than the quota allows, each request as soon as it is forwarded."""
    for number, size in enumerate(PRODUCE_SIZES, first):
        peer.sends(produce_of(size, number))
        while not peer.connection.session.in_flight:
            proxy.wait(500)
        proxy.wait(20)
        peer.answers(produced(number, version=PRODUCE_VERSION))


@pytest.mark.parametrize("level", ["packed", "trace"])
@pytest.mark.parametrize("mode", list(Mode))
def test_what_the_data_path_decides_is_judged_exact(tmp_path: Path, mode: Mode, level: str) -> None:
    """In every mode the metering files hold every decision on produce, fetch and request time, and the validator proves each."""
    with MeteredFixture(tmp_path, produce=BOUND, fetch=BOUND, request=0.0005, mode=mode, level=level) as proxy:
        burst(proxy, proxy.connect(), 1_000)
        fetches(proxy, proxy.connect())
        proxy.set_quota(produce=3 * BOUND)
        burst(proxy, proxy.connect(), 2_000)
        proxy.connect().asks(plain(1), answered(1))
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.incomplete, verdict.coverage_percent) == ({}, [], 100.0)
    counts = verdict.counts
    assert set(counts) == {"Produce", "Fetch", "Request"}
    assert [name for name, count in counts.items() if not count["throttled"]] == []
    usage = proxy.usages.get("ANONYMOUS", "etl")
    assert counts["Produce"]["units"] == usage.produce_bytes
    assert counts["Fetch"]["units"] == usage.fetch_bytes
    assert counts["Request"]["units"] == usage.request_ns
    assert total(proxy, "samples", "applied_ms_sum") > 0 or mode is Mode.OBSERVE


def total(proxy: MeteredFixture, table: str, column: str) -> int:
    return sum(row[column] for row in proxy.rows(table))


def test_in_observe_nothing_was_applied(tmp_path: Path) -> None:
    """In observe mode the metering files show the throttle times of decisions and usage, and that none was applied."""
    with MeteredFixture(tmp_path, produce=BOUND, mode=Mode.OBSERVE) as proxy:
        burst(proxy, proxy.connect(), 1)
        proxy.written()
    assert total(proxy, "samples", "throttle_ms_sum") > 0
    assert total(proxy, "samples", "applied_ms_sum") == 0
    assert total(proxy, "usage", "throttle_ms") == total(proxy, "samples", "throttle_ms_sum")
    assert total(proxy, "usage", "throttled_requests") > total(proxy, "usage", "waited_requests") == total(proxy, "usage", "waited_ms") == 0


def test_a_change_of_mode_holds_from_its_decision_on(tmp_path: Path) -> None:
    """A decision before a change of mode is metered as not applied, and one after it as applied."""
    with MeteredFixture(tmp_path, produce=BOUND, mode=Mode.OBSERVE) as proxy:
        peer = proxy.connect()
        peer.asks(produce_of(20_000, 1), produced(1, version=PRODUCE_VERSION))
        proxy.enforcement.mode = Mode.MUTE
        proxy.reported_state()
        peer.asks(produce_of(2_000, 2), produced(2, version=PRODUCE_VERSION))
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.incomplete) == ({}, [])
    assert [row["applied_ms"] for row in proxy.rows("samples")] == [[0], proxy.rows("samples")[1]["thr_ms"]]


def test_a_request_that_keeps_a_membership_is_excused(tmp_path: Path) -> None:
    """A group request that waits less than its throttle time is marked as excused in the files, and is no violation."""
    with MeteredFixture(tmp_path, request=1e-6, mode=Mode.MUTE, windows=QuotaWindows(window_ms=30_000)) as proxy:
        peer = proxy.connect()
        peer.sends(plain(1))
        proxy.wait(10)
        peer.answers(answered(1))
        verdict = proxy.written()
    assert verdict.kinds() == {}
    assert [row["applied_ms"] for row in proxy.rows("samples")] == [[-1]]
    assert (total(proxy, "usage", "throttled_requests"), total(proxy, "usage", "waited_requests")) == (1, 0)


def test_usage_counts_every_answer_whatever_its_quota(tmp_path: Path) -> None:
    """Usage counts requests, bytes, waits and connections by client and API class, also for a client without a quota."""
    with MeteredFixture(tmp_path, produce=BOUND) as proxy:
        peer, free = proxy.connect(), proxy.connect()
        request, answer = produce_of(20_000, 1), produced(1, version=PRODUCE_VERSION)
        peer.sends(request)
        peer.answers(answer)
        proxy.wait(30_000)
        peer.sends(produce_of(300, 2, acks=0))
        free.asks(plain(1, client_id="audit"), answered(1))
        proxy.written()
    clients = {row["client_ref"]: row["client_id"] for row in proxy.rows("dim_client")}
    usage = {(clients[row["client_ref"]], row["api_class"]): row for row in proxy.rows("usage")}
    assert set(usage) == {("etl", "produce"), ("etl", "other"), ("audit", "group"), ("audit", "other")}
    etl = usage["etl", "produce"]
    assert (etl["requests"], etl["request_bytes"], etl["produce_bytes"]) == (2, 20_300, 20_300)
    assert (etl["response_bytes"], etl["throttled_requests"], etl["throttle_ms"]) == (len(answer) - 4, 1, 10_000)
    assert (etl["waited_requests"], etl["waited_ms"]) == (1, 10_000)
    assert (usage["audit", "group"]["requests"], usage["audit", "other"]["connections_open"]) == (1, 1)
    assert (etl["node"], etl["listener"], usage["etl", "other"]["connections_opened"]) == ("b:1", LISTENER, 1)


def test_a_fetch_that_waits_stands_in_the_trace(tmp_path: Path) -> None:
    """At level trace a Fetch that waited is noted as an event, and the decisions are still proved."""
    with MeteredFixture(tmp_path, fetch=BOUND, level="trace") as proxy:
        peer = proxy.connect()
        peer.sends(fetch(1, version=FETCH_VERSION, max_bytes=10_000))
        peer.answers(fetched_of(12_000, 1))
        proxy.wait(2_500)
        assert peer.sends(fetch(2, version=FETCH_VERSION, max_bytes=10_000)) == []
        proxy.wait(12_000)
        peer.answers(fetched_of(100, 2))
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.incomplete) == ({}, [])
    notes = [row for row in proxy.rows("events") if row["kind"] == 3]
    assert [(row["api_key"], row["throttle_ms"] > 0) for row in notes] == [(ApiKey.FETCH, True)]


def test_connections_are_decisions_too(tmp_path: Path) -> None:
    """The connection rates of process, listener and address are metered as decisions, and the validator proves all of them."""
    with MeteredFixture(tmp_path, mode=Mode.DELAY) as proxy:
        quotas = proxy.quotas
        quotas.update_process(1_000, 3)
        quotas.update_listener(LISTENER, 1_000, 5)
        update_rate(quotas.ips, None, 2)
        listener = quotas.listeners[LISTENER]
        outcomes: list[Any] = []
        for _ in range(60):
            quotas.arrive(listener, proxy.now_ms)
            quotas.take_slot(listener)
            outcomes.append(quotas.admit(listener, ADDRESS, proxy.now_ms).outcome)
            proxy.wait(130)
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.incomplete, verdict.coverage_percent) == ({}, [], 100.0)
    scopes = {row["scope"]: row for row in proxy.rows("dim_group")}
    assert set(scopes) == {"process", "listener", "ip"}
    assert (scopes["ip"]["tag_ip"], scopes["ip"]["node_id"], scopes["listener"]["listener"]) == ("10.0.0.7", 1, LISTENER)
    refused = sum(outcome.name == "IP_THROTTLED" for outcome in outcomes)
    assert refused > 0
    assert verdict.counts["Connection"]["units"] == 3 * (60 - refused)


def test_a_broker_gets_its_name_when_that_is_learnt(tmp_path: Path) -> None:
    """Decisions made before a broker's node id was known are metered under its node id."""
    with MeteredFixture(tmp_path, produce=BOUND) as proxy:
        peer = proxy.connect()
        peer.asks(produce_of(500, 1), produced(1, version=PRODUCE_VERSION))
        proxy.meter.flush()
        proxy.scopes.learn(7, BROKER)
        peer.asks(produce_of(500, 2), produced(2, version=PRODUCE_VERSION))
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.decisions) == ({}, 2)
    assert [(row["node_id"], row["node"]) for row in proxy.rows("dim_group")] == [(7, "7")]
    assert {row["node_id"] for row in proxy.rows("usage")} == {7}
