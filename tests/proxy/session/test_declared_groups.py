"""Declared groups share one quota between many clients, have parents, and change while connections live."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.base.networks import networks_of
from proxy.enforcement.mode import Mode
from proxy.session.login.identity import IdentityRules
from quota.entity import ClientQuotaEntity, ClientQuotaType
from quota.groups.declared_groups import GROUP_TAG, Conditions, DeclaredGroup
from quota.groups.pattern import Pattern
from tests.support.frames.kafka_frames import fetch, produced
from tests.support.frames.topic_frames import QUOTA_EXCEEDED, create, read_answer
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.metered_fixture import MeteredFixture
from tests.support.memory.topic_model import TopicModel, split
from tests.support.memory.verdicts import FETCH_VERSION, PRODUCE_VERSION, fetched_of, produce_of

PRODUCE, FETCH, REQUEST, MUTATION = ClientQuotaType
EDGE, INSIDE = IdentityRules("edge"), IdentityRules("inside")


def ids(*texts: str) -> Conditions:
    return Conditions(client_ids=tuple(map(Pattern, texts)))


ACME = DeclaredGroup("acme", ids("acme-*"), {PRODUCE: 1_000.0, FETCH: 1_000.0})
SAAS = DeclaredGroup("saas", None, {PRODUCE: 1_500.0, FETCH: 1_500.0})
TENANTS = (SAAS, DeclaredGroup("acme", ids("acme-*"), ACME.bounds, "saas"), DeclaredGroup("globex", ids("globex-*"), ACME.bounds, "saas"))


def announced(proxy: ProxyFixture, peer: Peer, size: int, number: int, client_id: str) -> int:
    """Produce this many bytes in `mute`; return for how long nothing is read afterwards."""
    proxy.enforcement.mode = Mode.MUTE
    assert peer.sends(produce_of(size, number, client_id=client_id)) == [number]
    assert peer.answers(produced(number, version=PRODUCE_VERSION)) == [number]
    throttle = peer.connection.session.throttle
    return throttle.throttled_until_ms - proxy.now_ms if throttle.is_throttled else 0


def test_members_share_a_budget() -> None:
    """Two client-ids of one group share its quota, and a client outside the group does not use it."""
    with ProxyFixture() as proxy:
        proxy.declare(ACME)
        one, other, stranger = proxy.connect(), proxy.connect(), proxy.connect()
        assert announced(proxy, one, 8_000, 1, "acme-etl") == 0
        assert announced(proxy, stranger, 50_000, 1, "web") == 0
        assert announced(proxy, other, 4_000, 1, "acme-web") == 2_000


def test_a_client_counts_for_its_groups_parent() -> None:
    """Two tenants within their own quotas but together over the quota of the parent group are throttled by the parent."""
    with ProxyFixture() as proxy:
        proxy.declare(*TENANTS)
        assert announced(proxy, proxy.connect(), 9_000, 1, "acme-a") == 0
        assert announced(proxy, proxy.connect(), 9_000, 1, "globex-a") == 2_000
        usage = proxy.usages.get("ANONYMOUS", "globex-a")
        assert usage.throttle_ms == {("Produce", f"{GROUP_TAG}=saas"): 2_000}
        groups = {group.tags[GROUP_TAG]: group for group in proxy.scope.produce.groups()}
        assert [groups[name].recorded_total for name in ("acme", "globex", "saas")] == [9_000, 9_000, 18_000]
        assert [len(groups[name].verdicts) for name in ("acme", "globex", "saas")] == [0, 0, 1]


def test_the_longest_throttle_holds() -> None:
    """A tenant over its own quota and over that of the parent group is throttled for the longer of the two times."""
    with ProxyFixture() as proxy:
        proxy.declare(*TENANTS)
        assert announced(proxy, proxy.connect(), 16_000, 1, "acme-a") == 6_000
        usage = proxy.usages.get("ANONYMOUS", "acme-a")
        assert usage.throttle_ms == {("Produce", f"{GROUP_TAG}=acme"): 6_000}


def test_listener_and_network() -> None:
    """A client is a member of a group by its listener or its network, whatever its client-id."""
    office = DeclaredGroup("office", Conditions(networks=networks_of(["10.1.0.0/16"])), {PRODUCE: 1_000.0})
    edge = DeclaredGroup("edge", Conditions(listeners=frozenset({"edge"})), {PRODUCE: 1_000.0})
    with ProxyFixture() as proxy:
        proxy.declare(office, edge)
        assert announced(proxy, proxy.connect(rules=INSIDE, host="10.1.2.3"), 9_000, 1, "a") == 0
        assert announced(proxy, proxy.connect(rules=EDGE, host="10.1.9.9"), 3_000, 1, "b") == 2_000
        assert announced(proxy, proxy.connect(rules=EDGE, host="10.2.0.1"), 11_000, 1, "a") == 1_000
        assert announced(proxy, proxy.connect(rules=INSIDE, host="10.2.0.1"), 90_000, 1, "a") == 0


def test_a_fetch_waits_for_the_parents_budget() -> None:
    """A Fetch waits for the quota of the parent group that a sibling has used, and none of its bytes stay pending after its response."""
    with ProxyFixture() as proxy:
        proxy.declare(*TENANTS)
        first, second = proxy.connect(), proxy.connect()
        first.asks(fetch(1, version=FETCH_VERSION, client_id="acme-a"), fetched_of(14_000, 1))
        assert second.sends(fetch(2, version=FETCH_VERSION, client_id="globex-a", max_bytes=5_000)) == []
        proxy.wait(11_500)
        assert second.forwarded() == [2]
        parent = next(group for group in proxy.scope.fetch.groups() if group.tags == {GROUP_TAG: "saas"})
        assert parent.pending > 0
        second.answers(fetched_of(1_000, 2))
        assert [group.pending for group in proxy.scope.fetch.groups()] == [0] * 3


def test_topics_are_refused_for_the_parents_sake() -> None:
    """A tenant with mutation tokens of its own is refused when a sibling has emptied the parent's token bucket."""
    bounds = {MUTATION: 10.0}
    with ProxyFixture() as proxy:
        proxy.declare(
            DeclaredGroup("saas", None, {MUTATION: 1.0}),
            DeclaredGroup("acme", ids("acme-*"), bounds, "saas"),
            DeclaredGroup("globex", ids("globex-*"), bounds, "saas"),
        )
        model, one, other = TopicModel(), proxy.connect(), proxy.connect()
        assert errors(one, model, create(1, {"a": 20}, client_id="acme-a")) == [("a", 0)]
        assert errors(other, model, create(2, {"b": 1}, client_id="globex-a")) == [("b", QUOTA_EXCEEDED)]
        balances = {group.tags[GROUP_TAG]: group.tokens(proxy.now_ms) for group in proxy.scope.mutation.groups()}
        assert balances == {"saas": -9.0, "acme": 90.0, "globex": 110.0}


def errors(peer: Peer, model: TopicModel, request: bytes) -> list[tuple[str | None, int]]:
    """Send a CreateTopics request; return the topics and error codes of its response."""
    peer.proxy.enforcement.mode = Mode.MUTE
    peer.client.arrive(request)
    while asked := peer.broker.take():
        for frame in split(asked):
            peer.broker.arrive(model.answer(frame))
    return read_answer(19, 7, peer.client.take()).errors


def test_a_change_is_in_force_with_the_next_request() -> None:
    """A change of a group's quota or members applies to living connections from the next request on and keeps the recorded bytes."""
    with ProxyFixture() as proxy:
        proxy.declare(ACME)
        etl, web = proxy.connect(), proxy.connect()
        assert announced(proxy, etl, 8_000, 1, "acme-etl") == 0
        proxy.declare(DeclaredGroup("acme", ids("acme-*"), {PRODUCE: 500.0}))
        assert announced(proxy, etl, 100, 2, "acme-etl") == 6_200
        proxy.wait(6_200)
        proxy.declare(DeclaredGroup("acme", ids("web"), {PRODUCE: 500.0}))
        assert announced(proxy, etl, 50_000, 3, "acme-etl") == 0
        assert announced(proxy, web, 100, 1, "web") == 6_200
        proxy.declare()
        proxy.wait(6_200)
        assert announced(proxy, web, 50_000, 2, "web") == 0
        assert proxy.closed == []


def test_a_switch_over_a_group() -> None:
    """A switch to `off` for one client-id ends its throttling although it is in a group, and another member stays throttled."""
    with ProxyFixture() as proxy:
        proxy.declare(ACME)
        proxy.switch({"entity:client-id=acme-etl": "off"})
        assert announced(proxy, proxy.connect(), 50_000, 1, "acme-etl") == 0
        assert announced(proxy, proxy.connect(), 11_000, 1, "acme-web") == 1_000


def test_request_time_has_a_budget_too() -> None:
    """Request time is charged to the group of a client and to the parent group."""
    with ProxyFixture() as proxy:
        proxy.declare(DeclaredGroup("saas", None, {REQUEST: 1.0}), DeclaredGroup("acme", ids("acme-*"), {REQUEST: 1.0}, "saas"))
        peer = proxy.connect()
        peer.sends(produce_of(100, 1, client_id="acme-a"))
        proxy.wait(20)
        peer.answers(produced(1, version=PRODUCE_VERSION))
        totals = [group.recorded_total for group in proxy.scope.request.groups()]
        assert totals[0] == totals[1] > 0


def busy(peer: Peer, numbers: Iterator[int], client_id: str) -> None:
    """Send five requests, together more than the quota allows, each as soon as it may be forwarded."""
    for size in (3_000, 4_000, 200, 6_000, 100):
        number = next(numbers)
        peer.sends(produce_of(size, number, client_id=client_id))
        while not peer.connection.session.in_flight:
            peer.proxy.wait(500)
        peer.answers(produced(number, version=PRODUCE_VERSION))
        peer.proxy.wait(100)


@pytest.mark.parametrize("level", ["packed", "trace"])
def test_the_files_prove_every_group_of_a_chain(tmp_path: Path, level: str) -> None:
    """The validator proves every decision from the metering files while quotas and parents of groups change."""
    numbers = iter(range(10_000))
    deep = (
        DeclaredGroup("world", None, {PRODUCE: 2_000.0}),
        DeclaredGroup("saas", None, {PRODUCE: 1_500.0, REQUEST: 0.001}, "world"),
        *TENANTS[1:],
    )
    with MeteredFixture(tmp_path, produce=1_000.0, level=level) as proxy:
        peers = [proxy.connect() for _ in range(3)]
        for groups in (TENANTS, deep, (ACME,), (), deep):
            proxy.declare(*groups)
            for peer, client_id in zip(peers, ("acme-a", "globex-a", "etl"), strict=True):
                busy(peer, numbers, client_id)
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.incomplete, verdict.coverage_percent) == ({}, [], 100.0)
    assert verdict.counts["Produce"]["throttled"] > 0


def test_who_has_no_parent_pays_nothing(proxy: ProxyFixture) -> None:
    """A group without a parent, declared or not, is of the class that records once."""
    proxy.declare(*TENANTS)
    proxy.scope.produce.update_quota(ClientQuotaEntity(None, "etl"), 1_000.0)
    announced(proxy, proxy.connect(), 100, 1, "etl")
    announced(proxy, proxy.connect(), 100, 1, "acme-a")
    kinds = {group.tags.get(GROUP_TAG): type(group).__name__ for group in proxy.scope.produce.groups()}
    assert kinds == {None: "EnforcedGroup", "acme": "ChildGroup", "saas": "EnforcedGroup"}
