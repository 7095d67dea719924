"""A Fetch is judged twice: before it is forwarded, because bytes that have arrived cannot be refused, and at its response."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.request_head import read_request_head
from proxy.base.close_reason import CloseReason
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import Mode
from proxy.session.throttle.fetch_admission import FetchAdmission
from tests.support.frames.kafka_frames import answered, fetch, fetched, plain, share_fetch, share_fetched, throttle_ms
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, fetched_for, fetched_of

ACTING = [Mode.DELAY, Mode.MUTE]


def ask(number: int) -> bytes:
    """Return a Fetch request."""
    return fetch(number, version=FETCH_VERSION)


@pytest.mark.parametrize("mode", ACTING)
def test_it_waits_while_its_group_is_over_the_bound(proxy: ProxyFixture, mode: Mode) -> None:
    """A Fetch waits while its group is over quota, also on a connection without a throttle, and is forwarded when the rate allows it."""
    proxy.enforcement.mode = mode
    first, second = proxy.connect(), proxy.connect()
    first.asks(ask(1), fetched_for(5_000, 1))
    assert second.sends(ask(1), plain(2)) == []
    assert not second.client.reading
    assert second.connection.session.requests.pending.resume_at_ms == proxy.now_ms + 11_000
    proxy.wait(10_999)
    assert second.forwarded() == []
    proxy.wait(1)
    assert second.forwarded() == [1, 2]
    assert second.client.reading


def test_what_others_will_bring_counts(proxy: ProxyFixture) -> None:
    """A Fetch in flight counts with the size of the last response on its connection until its own response arrives."""
    first, second = proxy.connect(), proxy.connect()
    for peer in (first, second):
        peer.asks(ask(1), fetched_of(3_000, 1))
    (group,) = proxy.scope.fetch.groups()
    assert first.sends(ask(2)) == [2]
    assert group.pending == 3_000
    assert second.sends(ask(2)) == [], "6,000 recorded, 3,000 under way and as many of its own are too many"
    first.answers(fetched_of(100, 2))
    assert group.pending == 0
    proxy.wait(0)
    assert second.forwarded() == [2], "an answer that brought less than expected makes room before the deadline"
    assert group.pending == 3_000


def test_its_own_bytes_count_too(proxy: ProxyFixture) -> None:
    """A Fetch whose expected response would exceed the quota waits."""
    peer = proxy.connect()
    peer.asks(ask(1), fetched_of(4_000, 1))
    peer.asks(ask(2), fetched_of(4_000, 2))
    assert peer.sends(ask(3)) == [], "8,000 recorded and 4,000 of its own are too many"
    proxy.wait(10_999)
    assert peer.forwarded() == []
    proxy.wait(1)
    assert peer.forwarded() == [3]


@pytest.mark.parametrize("size_bytes", [10_000, 12_000])
def test_a_fetch_as_large_as_the_window_goes_when_that_is_empty(proxy: ProxyFixture, size_bytes: int) -> None:
    """A client whose responses are as large as the window or larger can fetch whenever the window is empty."""
    peer = proxy.connect()
    proxy.enforcement.mode = Mode.MUTE
    for number in range(1, 4):
        peer.asks(ask(number), fetched_of(size_bytes, number))
        proxy.wait(11_000)


def test_the_first_fetches_of_a_group_do_not_all_go_at_once(proxy: ProxyFixture) -> None:
    """The first Fetch of a group goes alone, and the others are forwarded once its response shows how large they are."""
    peers = [proxy.connect() for _ in range(5)]
    assert [peer.sends(ask(1)) for peer in peers] == [[1], [], [], [], []], "the first may bring a whole window"
    peers[0].answers(fetched_of(100, 1))
    proxy.wait(0)
    assert [peer.forwarded() for peer in peers[1:]] == [[1], [1], [1], [1]], "fetches of 100 bytes all fit"


def test_who_waits_longest_is_notified_first(proxy: ProxyFixture) -> None:
    """Waiting fetches are forwarded as responses make room, and a connection that has closed is skipped."""
    first, second, *others = [proxy.connect() for _ in range(5)]
    first.asks(ask(1), fetched_of(3_300, 1))
    assert first.sends(ask(2)) == [2]
    assert second.sends(ask(3)) == [3]
    (group,) = proxy.scope.fetch.groups()
    group.record_unchecked(500, proxy.now_ms)
    assert [other.sends(ask(1)) for other in others] == [[], [], []]
    others[0].connection.close(CloseReason.CLIENT_CLOSED)
    first.answers(fetched_of(3_000, 2))
    proxy.wait(0)
    assert [other.forwarded() for other in others[1:]] == [[], []], "6,800 recorded and 3,300 under way are too many"
    second.answers(fetched_of(100, 3))
    proxy.wait(0)
    assert [other.forwarded() for other in others[1:]] == [[1], [1]], "6,900 and 3,000, and since the next was notified, 100 more"


def test_a_closed_connection_is_waited_for_no_more(proxy: ProxyFixture) -> None:
    """The expected bytes of a connection's fetches are released when it closes, and a waiting Fetch is forwarded."""
    peer, other, waiting = proxy.connect(), proxy.connect(), proxy.connect()
    peer.asks(ask(1), fetched_of(3_000, 1))
    assert peer.sends(ask(2)) == [2]
    assert other.sends(ask(3)) == [3]
    (group,) = proxy.scope.fetch.groups()
    assert group.pending == 6_000
    assert waiting.sends(ask(1)) == []
    peer.connection.close(CloseReason.CLIENT_CLOSED)
    assert group.pending == 3_000
    proxy.wait(0)
    assert waiting.forwarded() == [1]


def test_25_s_after_it_was_read_it_goes_on(proxy: ProxyFixture) -> None:
    """A Fetch is forwarded 25 s after it was read, however far its group is over quota."""
    first, second = proxy.connect(), proxy.connect()
    first.asks(ask(1), fetched_for(10_000_000, 1))
    proxy.set_quota(fetch=1.0)
    proxy.wait(5_000)
    assert second.sends(ask(1)) == []
    for _ in range(20):
        (group,) = proxy.scope.fetch.groups()
        group.record_unchecked(10_000, proxy.now_ms)
        proxy.wait(1_000)
    assert second.forwarded() == []
    proxy.wait(4_999)
    assert second.forwarded() == []
    proxy.wait(1)
    assert second.forwarded() == [1]


def test_one_waiting_fetch_of_the_group_goes_on_per_throttle_round(proxy: ProxyFixture) -> None:
    """One of several waiting fetches of a group is forwarded in each throttle round, and each gets its turn."""
    peers = [proxy.connect() for _ in range(3)]
    proxy.set_quota(fetch=1.0)
    peers[0].asks(ask(1), fetched_of(9_000_000, 1))
    waiting = [proxy.connect() for _ in range(3)]
    for peer in waiting:
        assert peer.sends(ask(1)) == []
    turns = []
    (group,) = proxy.scope.fetch.groups()
    for _ in range(3):
        for _ in range(25):
            group.record_unchecked(10_000, proxy.now_ms)
            proxy.wait(1_000)
        turns.append([at for at, peer in enumerate(waiting) if peer.forwarded()])
    assert [len(turn) for turn in turns] == [1, 1, 1]
    assert {turn[0] for turn in turns} == {0, 1, 2}


def test_time_kept_back_for_another_reason_counts(proxy: ProxyFixture) -> None:
    """The 25 s of a Fetch begin when it is read, also while its connection's throttle keeps it back."""
    peer = proxy.connect()
    proxy.enforcement.mode = Mode.MUTE
    peer.asks(ask(1), fetched_for(60_000, 1))
    peer.connection.client.data_received(ask(2))
    proxy.set_quota(fetch=0.001)
    (group,) = proxy.scope.fetch.groups()
    group.record_unchecked(10_000, proxy.now_ms + 24_000)
    proxy.wait(24_999)
    assert peer.forwarded() == []
    proxy.wait(1)
    assert peer.forwarded() == [2]


@pytest.mark.parametrize("mode", ACTING)
def test_the_answer_is_judged_too(proxy: ProxyFixture, mode: Mode) -> None:
    """A Fetch response over quota is held or announced, and its client is not read, as with Produce."""
    proxy.enforcement.mode = mode
    peer = proxy.connect()
    peer.sends(ask(1))
    peer.broker.arrive(fetched_for(7_000, 1))
    if mode is Mode.DELAY:
        assert peer.client.take() == b""
        proxy.wait(5_000)
    announced = throttle_ms(peer.client.take(), 1, FETCH_VERSION)
    assert announced == (2_000 if mode is Mode.DELAY else 7_000)
    assert not peer.client.reading


def asked(frame: bytes) -> tuple[int | None, int | None]:
    """Return max_bytes and min_bytes of a request."""
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    return head.max_bytes, head.min_bytes


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("mode", list(Mode))
def test_max_bytes_is_lowered_to_the_window(proxy: ProxyFixture, mode: Mode, version: int) -> None:
    """In enforcing modes max_bytes and min_bytes are lowered to the bytes of one window, and in observe mode the Fetch is unchanged."""
    proxy.enforcement.mode = mode
    peer = proxy.connect()
    request = fetch(1, version=version, max_bytes=50_000_000, min_bytes=20_000)
    peer.client.arrive(request)
    forwarded = peer.broker.take()
    if mode is Mode.OBSERVE:
        assert forwarded == request
    else:
        assert asked(forwarded) == (10_000, 10_000)
        assert forwarded == fetch(1, version=version, max_bytes=10_000, min_bytes=10_000)


@pytest.mark.parametrize(("max_bytes", "min_bytes"), [(10_000, 10_000), (9_999, 1), (0, 0), (10_000, -1)])
def test_less_than_the_window_stays(proxy: ProxyFixture, max_bytes: int, min_bytes: int) -> None:
    """A Fetch that asks for no more than one window is forwarded unchanged."""
    peer = proxy.connect()
    request = fetch(1, max_bytes=max_bytes, min_bytes=min_bytes)
    peer.client.arrive(request)
    assert peer.broker.take() == request


@pytest.mark.parametrize("bound", [1e9, 2**31 / 10])
def test_a_window_beyond_an_int32_changes_nothing(proxy: ProxyFixture, bound: float) -> None:
    """A Fetch is forwarded unchanged when the window holds more bytes than an int32."""
    proxy.set_quota(fetch=bound)
    peer = proxy.connect()
    request = fetch(1, max_bytes=2**31 - 1)
    peer.client.arrive(request)
    assert peer.broker.take() == request


def test_pipelined_fetches_are_all_lowered(proxy: ProxyFixture) -> None:
    """Each of several pipelined fetches that arrive in pieces is lowered, and each is forwarded after the response to the one before."""
    peer = proxy.connect()
    peer.asks(ask(9), fetched_of(100, 9))
    requests = b"".join([plain(1), fetch(2), plain(3), fetch(4), fetch(5, max_bytes=7)])
    for at in range(0, len(requests), 3):
        peer.client.arrive(requests[at : at + 3])
    assert peer.broker.take() == plain(1) + fetch(2, max_bytes=10_000) + plain(3)
    peer.answers(answered(1), fetched(2, size=100), answered(3))
    proxy.wait(0)
    assert peer.broker.take() == fetch(4, max_bytes=10_000)
    peer.answers(fetched(4, size=100))
    proxy.wait(0)
    assert peer.broker.take() == fetch(5, max_bytes=7)


@pytest.mark.parametrize("mode", ACTING)
def test_no_fetch_goes_behind_one_that_may_fill_the_window(proxy: ProxyFixture, mode: Mode) -> None:
    """No Fetch is forwarded while one that may fill the window is in flight, however small the last response was."""
    proxy.enforcement.mode = mode
    small, large = proxy.connect(), proxy.connect()
    small.asks(ask(1), fetched_of(100, 1))
    assert large.sends(*[ask(number) for number in range(1, 17)]) == [1]
    large.answers(fetched_of(10_000, 1))
    proxy.wait(10_999)
    assert large.forwarded() == []
    proxy.wait(1)
    assert large.forwarded() == [2]


def test_small_fetches_go_behind_each_other_as_far_as_the_window_holds_them(proxy: ProxyFixture) -> None:
    """Several fetches are in flight as long as the sum of their max_bytes fits into the window."""
    peer = proxy.connect()
    peer.asks(ask(9), fetched_of(100, 9))
    assert peer.sends(*[fetch(number, max_bytes=3_000, version=FETCH_VERSION) for number in range(1, 7)]) == [1, 2, 3, 4]
    peer.answers(fetched_of(100, 1))
    proxy.wait(0)
    assert peer.forwarded() == [5]


@pytest.mark.parametrize("version", [4, 12, 14, 15, 17])
def test_a_replica_id_exempts_no_client(proxy: ProxyFixture, version: int) -> None:
    """A Fetch with a replica id is lowered, recorded and delayed like any other."""
    first, second = proxy.connect(), proxy.connect()
    request = fetch(1, version=version, replica_id=3)
    first.client.arrive(request)
    assert asked(first.broker.take())[0] == 10_000
    first.broker.arrive(fetched(1, version=version, size=30_000))
    assert first.client.take() == b""
    assert second.sends(request) == []


def test_share_fetch_is_judged_like_fetch(proxy: ProxyFixture) -> None:
    """A ShareFetch is lowered and waits like a Fetch, and its response is held and announced."""
    first, second = proxy.connect(), proxy.connect()
    first.client.arrive(share_fetch(1, min_bytes=20_000))
    assert first.broker.take() == share_fetch(1, max_bytes=10_000, min_bytes=10_000)
    first.broker.arrive(share_fetched(1, size=30_000))
    assert first.client.take() == b""
    assert second.sends(share_fetch(1)) == []
    proxy.wait(5_000)
    assert throttle_ms(first.client.take(), 78, 1) > 10_000


def test_switched_off_fetches_are_free(proxy: ProxyFixture) -> None:
    """With `[quotas] fetch` off a Fetch and its response pass unchanged and at once, and the usage still counts its bytes."""
    proxy.scopes.switch(produce=True, fetch=False)
    peer = proxy.connect()
    request = fetch(1, version=FETCH_VERSION)
    peer.client.arrive(request)
    assert peer.broker.take() == request
    answer = fetched_for(60_000, 1)
    peer.broker.arrive(answer)
    assert peer.client.take() == answer
    assert proxy.usages.get("ANONYMOUS", "etl").fetch_bytes == 70_000


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.sampled_from([1, 500, 3_000, 9_000])),
        st.tuples(st.just("answer"), st.sampled_from([1, 400, 3_000, 20_000])),
        st.tuples(st.just("wait"), st.sampled_from([1, 300, 5_000])),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_behind_others_the_short_way_of_a_fetch_is_the_long_one(steps: list[tuple[str, int]]) -> None:
    """The fast path for a Fetch behind others makes the same decisions and expects the same bytes as the general path."""
    assert list(decisions(steps, short=True)) == list(decisions(steps, short=False))


def decisions(steps: list[tuple[str, int]], *, short: bool) -> Iterator[object]:
    """Apply these steps to the fetches of one connection; yield whether each is forwarded, and the bytes expected of it."""
    group, admission, now_ms, under_way = EnforcedGroup({}, 1_000.0), FetchAdmission(), 1_000_000, 0
    for step, amount in steps:
        if step == "wait":
            now_ms += amount
        elif step == "answer" and under_way:
            under_way -= 1
            group.record(amount, now_ms)
            admission.answered(amount)
        elif step == "fetch":
            goes = short and admission.passes_behind(group, amount, now_ms)
            if not goes and (not under_way or admission.may_follow(group, now_ms)):
                goes = admission.admits(group, amount, now_ms, now_ms, has_throttle_round=False)
                if goes:
                    admission.forwarded(group)
                else:
                    admission.leave_queue()
            under_way += goes
            yield goes, group.pending, admission.bytes_max if goes else 0
