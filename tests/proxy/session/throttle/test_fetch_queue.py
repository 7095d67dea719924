"""Fetches of a group that wait for the quota are forwarded in fair turns, and no Fetch waits until its client gives up."""

import pytest

from proxy.base.close_reason import CloseReason
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.groups.fetch_queue import FetchQueue
from proxy.enforcement.mode import Mode
from proxy.enforcement.quota_scopes import QuotaWindows
from tests.support.frames.kafka_frames import fetch, share_fetch
from tests.support.memory.fetch_load import FetchLoad
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, fetched_of

AGE_MAX_MS = 25_000
BOUND = 100_000
"""Large enough that the headers of the responses hardly matter."""


def number_waiting(group: EnforcedGroup) -> int:
    return 0 if group.fetch_queue is None else len(group.fetch_queue)


def ask(number: int) -> bytes:
    """Return a Fetch request with the largest max_bytes."""
    return fetch(number, version=FETCH_VERSION)


def group_of(proxy: ProxyFixture) -> EnforcedGroup:
    """Return the only group of the fetch quota."""
    (group,) = proxy.scope.fetch.groups()
    return group


def full_proxy(proxy: ProxyFixture, waiting: int) -> list[Peer]:
    """Fill the window of 10,000 bytes and let this many connections wait with one Fetch each; the last response had 4,000 bytes."""
    first = proxy.connect()
    first.asks(ask(1), fetched_of(4_000, 1))
    group_of(proxy).record_unchecked(6_000, proxy.now_ms)
    peers = [proxy.connect() for _ in range(waiting)]
    assert [peer.sends(ask(1)) for peer in peers] == [[]] * waiting
    return peers


@pytest.mark.parametrize(
    ("mode", "connections", "batch_bytes"),
    [
        pytest.param(Mode.DELAY, 1, 0, id="alone"),
        pytest.param(Mode.MUTE, 1, 0, id="alone-mute"),
        pytest.param(Mode.DELAY, 16, 0, id="as-many-as-two-windows-hold"),
        pytest.param(Mode.MUTE, 64, 0, id="more-than-the-quota-can-serve-in-25-s"),
        pytest.param(Mode.DELAY, 64, 20_000, id="the-same-in-whole-batches"),
        pytest.param(Mode.MUTE, 150, 0, id="very-many"),
    ],
)
def test_no_connection_starves_and_the_rate_holds(mode: Mode, connections: int, batch_bytes: int) -> None:
    """With endless fetches of one second's quota each, every fetch is forwarded before it is 25 s old, and the rate stays at the quota."""
    with ProxyFixture(fetch=float(BOUND), mode=mode) as proxy:
        load = FetchLoad(proxy, connections, BOUND, batch_bytes=batch_bytes)
        load.run(60)
        assert 0.9 <= load.passed_bytes / 60 / BOUND <= 1.1
        load.run(30)
        assert max(load.waits_ms) < AGE_MAX_MS
        assert load.oldest_ms < AGE_MAX_MS
        assert load.answers > connections
        assert proxy.closed == []


def test_a_fetch_that_waits_is_a_verdict(proxy: ProxyFixture) -> None:
    """Each Fetch that waits is counted as one verdict with the bytes it and those in flight were expected to bring."""
    full_proxy(proxy, 3)
    group = group_of(proxy)
    assert [(verdict.amount, verdict.observed, verdict.throttle_ms) for verdict in group.verdicts] == [(4_000, 1_400.0, 4_000)] * 3
    proxy.wait(5_000)
    assert group.throttle_count == 3
    assert proxy.counters.throttles["Fetch"].sum_ms == 12_000
    assert proxy.usages.get("ANONYMOUS", "etl").throttle_ms == {("Fetch", "client-id=etl"): 12_000}


def test_fetches_go_in_the_order_in_which_they_were_read(proxy: ProxyFixture) -> None:
    """Waiting fetches are forwarded in the order in which they were read."""
    peers = full_proxy(proxy, 5)
    turns = []
    proxy.wait(10_999)
    for _ in range(30):
        proxy.wait(500)
        for at, peer in enumerate(peers):
            if peer.forwarded():
                turns.append(at)
                peer.broker.arrive(fetched_of(4_000, 1))
    assert turns == [0, 1, 2, 3, 4]


def test_time_read_counts_not_time_come(proxy: ProxyFixture) -> None:
    """A Fetch that was kept back by its connection's throttle is forwarded before fetches that were read after it."""
    early = proxy.connect()
    proxy.enforcement.mode = Mode.MUTE
    early.asks(ask(1), fetched_of(12_000, 1))
    early.connection.client.data_received(ask(2))
    proxy.wait(1_000)
    late = proxy.connect()
    assert late.sends(ask(1)) == []
    group_of(proxy).record_unchecked(6_000, proxy.now_ms)
    proxy.wait(1_000)
    assert number_waiting(group_of(proxy)) == 2
    proxy.wait(10_000)
    assert early.forwarded() == [2]
    assert late.forwarded() == []


def test_a_fetch_that_waited_may_bring_its_share(proxy: ProxyFixture) -> None:
    """The max_bytes of a Fetch that waited is lowered so that all waiting fetches can be forwarded within 25 s."""
    peers = full_proxy(proxy, 20)
    proxy.wait(11_000)
    share = fetch(1, version=FETCH_VERSION, max_bytes=900)
    assert peers[0].broker.take() == share
    peers[0].broker.arrive(fetched_of(900, 1))
    proxy.wait(0)
    assert peers[1].broker.take() == share


@pytest.mark.parametrize(("asked_bytes", "min_bytes"), [(899, 1), (900, 900)])
def test_what_asks_for_less_than_its_share_stays(proxy: ProxyFixture, asked_bytes: int, min_bytes: int) -> None:
    """A Fetch that asks for no more than its share is forwarded unchanged."""
    request = fetch(1, version=FETCH_VERSION, max_bytes=asked_bytes, min_bytes=min_bytes)
    full_proxy(proxy, 0)
    first = proxy.connect()
    assert first.sends(request) == []
    peers = [proxy.connect() for _ in range(19)]
    assert [peer.sends(ask(1)) for peer in peers] == [[]] * 19
    proxy.wait(11_000)
    assert first.broker.take() == request


def test_share_fetches_have_their_share(proxy: ProxyFixture) -> None:
    """ShareFetch requests wait in the same queue, and their min_bytes is lowered with max_bytes."""
    full_proxy(proxy, 0)
    peers = [proxy.connect() for _ in range(20)]
    assert [peer.sends(share_fetch(1, min_bytes=5_000)) for peer in peers] == [[]] * 20
    proxy.wait(11_000)
    assert peers[0].broker.take() == share_fetch(1, max_bytes=900, min_bytes=900)


def test_a_share_grows_when_the_line_is_short_again(proxy: ProxyFixture) -> None:
    """The longest length of the queue limits the share for two throttle rounds and no longer."""
    line = FetchQueue()
    places = [line.join(now_ms, lambda: None, now_ms) for now_ms in range(10)]
    for place in places[1:]:
        line.leave(place)
    assert line.share_bytes(1_000, 24_999) == 180
    assert line.share_bytes(1_000, AGE_MAX_MS) == 180
    assert line.share_bytes(1_000, 2 * AGE_MAX_MS) == 1_800


def test_a_small_answer_to_a_lowered_fetch_says_little(proxy: ProxyFixture) -> None:
    """A Fetch is expected to bring a whole window after a response that was as large as its lowered max_bytes."""
    (peer, *others) = full_proxy(proxy, 20)
    proxy.wait(11_000)
    assert peer.forwarded() == [1]
    for other in others:
        other.connection.close(CloseReason.CLIENT_CLOSED)
    peer.broker.arrive(fetched_of(900, 1))
    proxy.wait(60_000)
    group = group_of(proxy)
    assert peer.sends(ask(2)) == [2]
    assert group.pending == 10_000


def test_who_leaves_gives_its_place_back(proxy: ProxyFixture) -> None:
    """A connection that closes while its Fetch waits leaves the queue, and nothing of it stays pending."""
    first, *others = full_proxy(proxy, 8)
    line = group_of(proxy).fetch_queue
    assert len(line) == 8
    for peer in (others[3], first, others[0]):
        peer.connection.close(CloseReason.CLIENT_CLOSED)
    assert len(line) == 5
    proxy.wait(11_000)
    assert [peer.forwarded() for peer in others[1:3]] == [[1], [1]]
    for peer in others:
        peer.connection.close(CloseReason.CLIENT_CLOSED)
    assert len(line) == 0
    assert group_of(proxy).pending == 0


def test_leaving_clients_do_not_stop_the_line() -> None:
    """Other fetches are served in time and at the rate of the quota while waiting connections close."""
    with ProxyFixture(fetch=float(BOUND)) as proxy:
        load = FetchLoad(proxy, 64, BOUND)
        for _ in range(32):
            load.run(1)
            load.close(load.fetchers[0])
        load.run(30)
        assert max(load.waits_ms) < AGE_MAX_MS
        assert 0.9 <= load.passed_bytes / 62 / BOUND <= 1.1
        for fetcher in list(load.fetchers):
            load.close(fetcher)
        assert number_waiting(group_of(proxy)) == 0
        assert group_of(proxy).pending == 0


def test_the_first_in_line_that_cannot_go_steps_aside(proxy: ProxyFixture) -> None:
    """The first Fetch in the queue does not block the others while its own connection is throttled."""
    proxy.enforcement.mode = Mode.MUTE
    first, second = proxy.connect(), proxy.connect()
    first.asks(ask(1), fetched_of(3_000, 1))
    assert first.sends(*[fetch(number, max_bytes=3_000, version=FETCH_VERSION) for number in (2, 3)]) == [2, 3]
    assert first.sends(ask(4)) == []
    assert second.sends(ask(1)) == []
    first.answers(fetched_of(8_000, 2))
    assert first.connection.session.throttle.is_throttled
    first.answers(fetched_of(12_000, 3))
    proxy.wait(11_000)
    assert second.forwarded() == [1]
    assert first.forwarded() == []


def test_who_is_no_longer_judged_leaves_the_line(proxy: ProxyFixture) -> None:
    """After a change to observe mode all waiting fetches are forwarded, and nothing stays pending."""
    peers = full_proxy(proxy, 3)
    group = group_of(proxy)
    proxy.enforcement.mode = Mode.OBSERVE
    for peer in peers:
        peer.connection.settings_changed()
    assert [peer.forwarded() for peer in peers] == [[1], [1], [1]]
    assert number_waiting(group) == 0
    assert group.pending == 0


def test_a_drain_empties_the_line(proxy: ProxyFixture) -> None:
    """In a drain waiting fetches are not forwarded, and the queue is emptied."""
    peers = full_proxy(proxy, 3)
    for peer in peers:
        peer.connection.drain()
    assert [peer.forwarded() for peer in peers] == [[], [], []]
    assert number_waiting(group_of(proxy)) == 0


def test_a_throttle_round_lets_no_more_be_brought_than_the_quota_in_its_time() -> None:
    """With a window longer than 25 s, the Fetch forwarded after 25 s may bring 25 s of the quota at most."""
    with ProxyFixture(fetch=1_000.0, mode=Mode.MUTE, windows=QuotaWindows(window_ms=30_000)) as proxy:
        first, second = proxy.connect(), proxy.connect()
        first.asks(fetch(1, version=FETCH_VERSION), fetched_of(1_000_000, 1))
        assert second.sends(fetch(2, version=FETCH_VERSION, max_bytes=10_000_000, min_bytes=0)) == []
        proxy.wait(25_000)
        assert second.broker.take() == fetch(2, version=FETCH_VERSION, max_bytes=25_000, min_bytes=0)
