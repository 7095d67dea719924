"""Shares of the burst of paced groups: a member with many connections divides its own share among them, not the shares of others."""

from collections.abc import Iterator

import pytest

from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.group import RECENT_MS
from tests.proxy.session.paced.test_paced_fetch import ask, group_of, requested_bytes
from tests.proxy.session.paced.test_pacing_changes import ETL
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import fetched_of

MB = 1_000_000
MANY, FEW = "10.0.0.1", "10.0.0.2"


class Consumer:
    """A connection that fetches whatever it may.

    Attributes:
        number: of its last Fetch.
        most: `max_bytes` of the last Fetch that reached the broker; None: none has.
    """

    def __init__(self, proxy: ProxyFixture, host: str) -> None:
        self.peer: Peer = proxy.connect(host=host)
        self.number = 0
        self.most: int | None = None

    def fetch(self, requested: int = 50 * MB) -> None:
        """Send a Fetch."""
        self.number += 1
        self.peer.client.arrive(ask(self.number, max_bytes=requested))
        self.note()

    def note(self) -> None:
        """Note what has reached the broker."""
        if self.peer.broker.written:
            self.most = requested_bytes(self.peer)

    def answer(self, size: int) -> None:
        """Answer the Fetch in flight."""
        self.peer.broker.arrive(fetched_of(size, self.number))


@pytest.fixture
def shared() -> Iterator[ProxyFixture]:
    """Yield a proxy with a burst of a second where client-id etl may fetch 1 MB per second."""
    with ProxyFixture(fetch=MB, factories=PacedGroups(1_000)) as proxy:
        yield proxy


def play(proxy: ProxyFixture, consumers: list[Consumer], rounds: int) -> None:
    """Let the broker answer each fetch with little after 100 ms, and each consumer send the next one."""
    for _ in range(rounds):
        proxy.wait(100)
        for one in consumers:
            one.note()
            if one.most is not None:
                one.answer(100)
                one.most = None
                one.fetch()
    proxy.wait(0)
    for one in consumers:
        one.note()


def test_many_connections_do_not_lower_the_share_of_another_member(shared: ProxyFixture) -> None:
    """Beside a member with 200 open fetches, another one gets a sixth of the burst."""
    many = [Consumer(shared, MANY) for _ in range(200)]
    for one in many:
        one.fetch()
    play(shared, many, 5)
    few = Consumer(shared, FEW)
    few.fetch()
    play(shared, [*many, few], 2)
    assert few.most is not None
    assert few.most >= MB // 6
    assert all(one.most is not None for one in many)
    assert group_of(shared).pending <= MB, "all reservations are within the burst"


def test_a_new_member_does_not_wait_for_open_fetches(shared: ProxyFixture) -> None:
    """The first fetch of a member passes at once beside those that others keep open: it requests what these leave, not its whole share."""
    for _ in range(150):
        Consumer(shared, MANY).fetch(6_000)
    few = Consumer(shared, FEW)
    few.fetch()
    assert few.most == MB - 150 * 6_000
    assert group_of(shared).pending == MB


def test_members_with_as_many_fetches_have_equal_shares(shared: ProxyFixture) -> None:
    """Each of two members with as many open fetches gets as much as one member with all of them."""
    consumers = [Consumer(shared, host) for host in (MANY, FEW) for _ in range(8)]
    for one in consumers:
        one.fetch()
    play(shared, consumers, 8)
    assert {one.most for one in consumers} == {MB // 17}


def test_more_fetches_of_a_member_lower_its_later_ones(shared: ProxyFixture) -> None:
    """After further fetches of a member, which are less than others had open before, an equal Fetch of it gets the smaller share."""
    others, own, first = [Consumer(shared, FEW) for _ in range(10)], [Consumer(shared, MANY) for _ in range(4)], Consumer(shared, MANY)
    for one in others:
        one.fetch(1_000)
    for one in others:
        one.answer(1_000)
    requested = 200_000
    for one in [*own, first]:
        one.fetch(100 if one is not first else requested)
        one.answer(100)
    first.fetch(requested)
    first.answer(100)
    assert first.most == requested, "its share is MB * 14 / 66"
    for one in own:
        one.fetch(100)
    own[0].answer(100)
    first.fetch(requested)
    assert first.most == 121_428, "its part of the half of members is MB / 2 / 7 now"


def test_a_member_that_has_gone_leaves_its_share(shared: ProxyFixture) -> None:
    """When a member has not fetched for two periods, the other one has the burst to itself."""
    first, second = Consumer(shared, MANY), Consumer(shared, FEW)
    for one in (first, second):
        one.fetch()
        one.answer(100)
    second.peer.client.close()
    for _ in range(3):
        shared.wait(RECENT_MS)
        first.fetch()
        first.answer(100)
    assert first.most == MB // 2


def test_open_fetches_of_members_end(shared: ProxyFixture) -> None:
    """The open fetches of a member are counted down by answers, and when connections end that wait or have fetches in flight."""
    consumers = [Consumer(shared, host) for host in (MANY, FEW) for _ in range(6)]
    for round_ in range(3):
        for one in consumers:
            one.fetch()
        shared.wait(0)
        for one in consumers[:: round_ + 2]:
            one.note()
            if one.most is not None:
                one.answer(one.most)
                one.most = None
        shared.wait(0)
    group = group_of(shared)
    members = list(group.line.root.members.values())
    assert sum(one.open_fetches for one in members) == group.open_fetches > 0
    assert len(group.line) > 0
    for one in consumers:
        one.peer.client.close()
    shared.wait(0)
    assert [one.open_fetches for one in members] == [0, 0]
    assert group.open_fetches == 0


def test_a_fetch_that_a_window_let_pass_is_none_of_the_schedule() -> None:
    """When a connection ends with a fetch in flight that passed before its group was paced, no open fetch is counted down."""
    with ProxyFixture(fetch=MB, factories=PacedGroups(1_000, paces_others=False)) as proxy:
        consumer = Consumer(proxy, MANY)
        consumer.fetch()
        proxy.pace(ETL)
        consumer.peer.client.close()
        proxy.wait(0)
        assert group_of(proxy).open_fetches == 0
