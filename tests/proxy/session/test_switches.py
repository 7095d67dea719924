"""Enforcement switches apply to living connections from the next request on and disconnect no client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.enforcement.mode import Mode
from proxy.enforcement.policy import Policy
from proxy.session.login.identity import IdentityRules
from quota.entity import ANONYMOUS
from tests.support.frames.kafka_frames import fetch, plain, produced
from tests.support.frames.topic_frames import QUOTA_EXCEEDED, create, read_answer
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.metered_fixture import MeteredFixture
from tests.support.memory.topic_model import TopicModel, split
from tests.support.memory.verdicts import BOUND, FETCH_VERSION, PRODUCE_VERSION, fetched_for, produce_for, produce_of

EDGE = IdentityRules("edge")
INSIDE = IdentityRules("inside")
OBSERVED = ["all", "listener:edge", "entity:user=ANONYMOUS", "entity:client-id=etl", "entity:user=<default>,client-id=<default>"]


def is_held(peer: Peer, number: int, **options: Any) -> bool:
    """Exceed the quota by far; return whether the response is held or nothing is read afterwards."""
    peer.sends(produce_for(60_000, number, **options))
    return peer.answers(produced(number, version=PRODUCE_VERSION)) == [] or not peer.client.reading


@pytest.mark.parametrize("target", OBSERVED)
def test_observed_by_any_target(proxy: ProxyFixture, target: str) -> None:
    """With a switch to `observe` for any target that covers the client, the verdict is computed and the client is not throttled."""
    proxy.switch({target: "observe"})
    assert not is_held(proxy.connect(rules=EDGE), 1)
    (group,) = proxy.scope.produce.groups()
    assert [verdict.throttle_ms for verdict in group.verdicts] == [60_000]


@pytest.mark.parametrize("target", OBSERVED)
def test_off_by_any_target(proxy: ProxyFixture, target: str) -> None:
    """With a switch to `off` for any target that covers the client, nothing is recorded, and the usage is still counted."""
    proxy.switch({target: "off"})
    assert not is_held(proxy.connect(rules=EDGE), 1)
    assert list(proxy.scope.produce.groups()) == []
    assert proxy.usages.get("ANONYMOUS", "etl").produce_bytes == 70_000


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_others_are_enforced(proxy: ProxyFixture, mode: str) -> None:
    """A switch does not affect a client of another listener, client-id and user."""
    proxy.switch({"listener:edge": mode, "entity:client-id=web": mode, "entity:user=alice": mode})
    assert not is_held(proxy.connect(rules=EDGE), 1)
    assert is_held(proxy.connect(rules=INSIDE), 1)


def test_two_clients_of_one_connection(proxy: ProxyFixture) -> None:
    """Each client-id of a connection has its own switch."""
    proxy.set_quota(produce=BOUND, client_id="web")
    proxy.switch({"entity:client-id=web": "observe"})
    peer = proxy.connect()
    assert not is_held(peer, 1, client_id="web")
    assert is_held(peer, 2)


def test_a_specific_enforce_over_a_broad_observe(proxy: ProxyFixture) -> None:
    """A switch to `enforce` for one client-id overrides a switch to `observe` for all."""
    proxy.switch({"all": "observe", "entity:client-id=etl": "enforce"})
    proxy.set_quota(produce=BOUND, client_id="web")
    assert is_held(proxy.connect(), 1)
    assert not is_held(proxy.connect(), 1, client_id="web")


def test_enforce_where_the_configuration_observes() -> None:
    """A switch to `enforce` delays responses when the configured mode is `observe`."""
    with ProxyFixture(produce=BOUND, mode=Mode.OBSERVE) as proxy:
        proxy.switch({"entity:client-id=etl": "enforce"})
        peer = proxy.connect()
        peer.sends(produce_for(3_000, 1))
        assert peer.answers(produced(1, version=PRODUCE_VERSION)) == []
        proxy.wait(3_000)
        assert peer.delivered() == [1]


def test_enforce_keeps_the_configured_way() -> None:
    """A switch to `enforce` mutes when the configured mode is `mute`."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        proxy.switch({"all": "enforce"})
        peer = proxy.connect()
        peer.sends(produce_for(3_000, 1))
        assert peer.answers(produced(1, version=PRODUCE_VERSION)) == [1]
        assert not peer.client.reading


@pytest.mark.parametrize("mode", ["observe", "off"])
@pytest.mark.parametrize("before", [Mode.DELAY, Mode.MUTE])
def test_who_waits_goes_on_at_once(proxy: ProxyFixture, before: Mode, mode: str) -> None:
    """After a switch to `observe` or `off` a throttled client is released at once, and a client without a switch stays throttled."""
    proxy.enforcement.mode = before
    proxy.set_quota(produce=BOUND, client_id="web")
    peer, other = proxy.connect(), proxy.connect()
    for one, client_id in ((peer, "etl"), (other, "web")):
        one.sends(produce_for(100_000, 1, client_id=client_id))
        one.broker.arrive(produced(1, version=PRODUCE_VERSION))
        one.sends(plain(2), plain(3))
        one.broker.take()
    proxy.switch({"entity:client-id=etl": mode})
    assert peer.delivered() == [1]
    assert peer.forwarded() == [2, 3]
    assert peer.client.reading
    assert other.forwarded() == []
    assert proxy.closed == []


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_fetch_that_waits_goes_on_at_once(proxy: ProxyFixture, mode: str) -> None:
    """A Fetch that waits for the quota is forwarded unchanged at once after a switch to `observe` or `off`."""
    peer = proxy.connect()
    peer.asks(fetch(1, version=FETCH_VERSION), fetched_for(0, 1))
    waiting = proxy.connect()
    request = fetch(2, version=FETCH_VERSION, max_bytes=2**31 - 1)
    waiting.client.arrive(request)
    assert waiting.broker.take() == b""
    proxy.switch({"all": mode})
    assert waiting.broker.take() == request
    assert proxy.closed == []


def test_there_and_back(proxy: ProxyFixture) -> None:
    """A switch to `off` and back keeps the samples recorded before and adds none."""
    peer = proxy.connect()
    peer.asks(produce_of(8_000, 1), produced(1, version=PRODUCE_VERSION))
    proxy.switch({"all": "off"})
    peer.asks(produce_of(50_000, 2), produced(2, version=PRODUCE_VERSION))
    proxy.switch({})
    peer.sends(produce_of(3_000, 3))
    assert peer.answers(produced(3, version=PRODUCE_VERSION)) == []
    (group,) = proxy.scope.produce.groups()
    assert [verdict.throttle_ms for verdict in group.verdicts] == [1_000]


def test_an_ordinary_request_asks_no_switch(proxy: ProxyFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switches are consulted once per client and change, not per request."""
    asked: list[str] = []
    of_client = Policy.of_client
    monkeypatch.setattr(Policy, "of_client", lambda *arguments: asked.append(arguments[3]) or of_client(*arguments))
    peer = proxy.connect()
    for number in range(1, 6):
        peer.asks(produce_of(100, number), produced(number, version=PRODUCE_VERSION))
    assert asked == ["etl"]
    proxy.switch({"all": "observe"})
    for number in range(6, 11):
        peer.asks(produce_of(100, number), produced(number, version=PRODUCE_VERSION))
    assert asked == ["etl", "etl"]


def test_an_exempt_principal_is_never_throttled(proxy: ProxyFixture) -> None:
    """An exempt principal is never throttled, and its bytes are counted as exempt while it is exempt."""
    proxy.settings.policy.configured([str(ANONYMOUS)])
    proxy.switch({"all": "enforce"})
    peer = proxy.connect()
    assert not is_held(peer, 1)
    usage = proxy.usages.get("ANONYMOUS", "etl")
    assert usage.exempt_bytes_total == usage.produce_bytes == 70_000
    proxy.settings.policy.configured([])
    proxy.scopes.renew()
    assert is_held(peer, 2)
    assert usage.exempt_bytes_total == 70_000


@pytest.mark.parametrize(("mode", "expected"), [("enforce", [("b", QUOTA_EXCEEDED)]), ("observe", [("b", 0)]), ("off", [("b", 0)])])
def test_topics(mode: str, expected: list[tuple[str, int]]) -> None:
    """Over the mutation quota a CreateTopics is refused under `enforce` and passes under `observe` and `off`."""
    with ProxyFixture(mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=1.0)
        model, peer = TopicModel(), proxy.connect()
        assert errors(peer, model, create(1, {"a": 20})) == [("a", 0)]
        proxy.wait(10)
        proxy.switch({"all": mode})
        assert errors(peer, model, create(2, {"b": 5})) == expected
        (group,) = proxy.scope.mutation.groups()
        assert round(group.tokens(proxy.now_ms)) == -9, "a topic that is refused, or would be, is charged to no client"
        assert group.throttle_count == (0 if mode == "off" else 1)


def errors(peer: Peer, model: TopicModel, request: bytes) -> list[tuple[str | None, int]]:
    """Send a CreateTopics request; return the topics and error codes of its response, after any wait."""
    peer.client.arrive(request)
    while not (asked := peer.broker.take()):
        peer.proxy.wait(1_000)
        if answer := peer.client.take():
            return read_answer(19, 7, answer).errors
    while asked:
        for frame in split(asked):
            peer.broker.arrive(model.answer(frame))
        asked = peer.broker.take()
    return read_answer(19, 7, peer.client.take()).errors


def test_the_time_of_the_exempt_is_exempt_time() -> None:
    """The request time of an exempt principal is recorded as exempt request time."""
    with ProxyFixture(request=0.001) as proxy:
        proxy.settings.policy.configured([str(ANONYMOUS)])
        peer = proxy.connect()
        peer.sends(plain(1))
        proxy.wait(50)
        peer.answers(b"\0\0\0\x05\0\0\0\x01\0")
        assert proxy.scope.request.exempt_request_time.recorded_total > 0
        assert list(proxy.scope.request.groups()) == []


def busy(peer: Peer, numbers: Iterator[int], client_id: str) -> None:
    """Send ten requests, far more than the quota allows, each as soon as it is forwarded."""
    for _ in range(10):
        number = next(numbers)
        peer.sends(produce_of(3_000, number, client_id=client_id))
        while not peer.connection.session.in_flight:
            peer.proxy.wait(500)
        peer.answers(produced(number, version=PRODUCE_VERSION))
        peer.proxy.wait(100)


TABLES = [
    {"all": "observe"},
    {"entity:client-id=etl": "observe"},
    {"entity:client-id=etl": "off", "all": "observe"},
    {"all": "off", "entity:user=ANONYMOUS": "enforce"},
    {"listener:edge": "observe"},
    {},
]


@pytest.mark.parametrize("base", [Mode.DELAY, Mode.OBSERVE])
def test_the_files_prove_what_switches_did(tmp_path: Path, base: Mode) -> None:
    """The validator proves every decision from the metering files while switches change on two listeners."""
    numbers = iter(range(1_000))
    with MeteredFixture(tmp_path, produce=BOUND, mode=base) as proxy:
        proxy.set_quota(produce=2 * BOUND, client_id="web")
        peers = proxy.connect(rules=EDGE), proxy.connect(rules=INSIDE)
        for table in TABLES:
            proxy.switch(table)
            for peer in peers:
                busy(peer, numbers, "etl")
                busy(peer, numbers, "web")
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.incomplete, verdict.coverage_percent) == ({}, [], 100.0)


@pytest.mark.parametrize(
    ("reported", "done", "kinds"),
    [
        pytest.param("observe", "enforce", {"NOT_APPLIED"}, id="waited-though-observed"),
        pytest.param("enforce", "observe", {"NOT_APPLIED"}, id="not-waited-though-enforced"),
        pytest.param("off", "observe", {"NOT_APPLIED"}, id="recorded-though-off"),
    ],
)
@pytest.mark.parametrize("target", ["all", "entity:client-id=etl"])
def test_the_validator_finds_what_was_done_otherwise(tmp_path: Path, target: str, reported: str, done: str, kinds: set[str]) -> None:
    """The validator reports NOT_APPLIED when the files say one switch and the data path applied another."""
    numbers = iter(range(1_000))
    with MeteredFixture(tmp_path, produce=BOUND) as proxy:
        proxy.switch({target: reported})
        ProxyFixture.switch(proxy, {target: done})
        busy(proxy.connect(), numbers, "etl")
        verdict = proxy.written()
    assert set(verdict.kinds()) == kinds
