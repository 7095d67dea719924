"""Members of a fleet share the limits on connections of addresses, listeners and principals."""

import random
from collections import deque

import pytest

from proxy.fleet.connections import other_members, own_connections, unclaimed
from proxy.fleet.connections.other_members import SILENT_MS
from proxy.fleet.connections.own_connections import FORGET_MS, REFRESH_MS, REPEAT_MS
from quota.connections.connection_quotas import Outcome
from tests.support.fleet.connection_members import ConnectionMember, Time, tell

WINDOW_MS = 11_000


@pytest.fixture
def time() -> Time:
    """The clock."""
    return Time()


def pair(time: Time, **limits: int) -> tuple[ConnectionMember, ConnectionMember]:
    """Return two members with the same limits."""
    some = ConnectionMember("a", time), ConnectionMember("b", time)
    for one in some:
        one.limit(**limits)
    return some


# --- open connections


def test_an_address_at_its_limit_at_one_member_is_refused_at_the_other(time: Time) -> None:
    """Connections of both members count against the limit of an address; one that ends makes room at both."""
    one, other = pair(time, count=3)
    assert [one.admits() for _ in range(2)] == [True, True]
    tell([one, other])
    assert [other.admits() for _ in range(2)] == [True, False]
    assert other.admits("10.0.0.2")
    tell([one, other])
    assert not one.admits()
    other.leave()
    tell([one, other])
    assert one.admits()
    assert one.connect().limit == 3


def test_within_the_lag_each_member_admits_up_to_the_limit(time: Time) -> None:
    """A client that alternates members has at most the limit of each member open, and none more after the next message."""
    one, other = pair(time, count=3)
    assert [member.admits() for _ in range(4) for member in (one, other)] == [True] * 6 + [False] * 2
    tell([one, other])
    for member in (one, other):
        member.leave()
        tell([one, other])
        assert not member.admits()


def test_lost_doubled_and_late_messages_leave_the_count_right(time: Time) -> None:
    """After any loss, duplication and disorder the count of the other member is that of its last message, at most a refresh later."""
    one, other = pair(time, count=1_000)
    dice = random.Random(7)
    late: list[bytes] = []
    for _ in range(400):
        time.now_ms += 50
        if dice.random() < 0.6 or not one.quotas.ips.counts:
            one.admits()
        else:
            one.leave()
        late.append(one.message())
        dice.shuffle(late)
        if dice.random() < 0.5:
            late.pop()
        if late and dice.random() < 0.5:
            data = late.pop()
            other.hear(data)
            other.hear(data)
    time.now_ms += REPEAT_MS
    other.hear(one.message())
    time.now_ms += REFRESH_MS
    other.hear(one.message())
    assert other.shared.open_of((-2, "10.0.0.1"), time()) == one.quotas.ips.counts[-2, "10.0.0.1"]


def test_a_change_is_sent_twice(time: Time) -> None:
    """The end of the last connection arrives with the second message, a second later, if the first one is lost."""
    one, other = pair(time, count=1)
    one.admits()
    tell([one, other])
    one.leave()
    one.message()
    assert not other.admits()
    time.now_ms += REPEAT_MS
    tell([one, other])
    assert other.admits()


def test_a_member_that_joins_later_learns_of_open_connections(time: Time) -> None:
    """Open connections are sent again each 10 s, so that a new member knows them."""
    one, _ = pair(time, count=1)
    one.admits()
    one.message()
    time.now_ms += REPEAT_MS
    one.message()
    late = ConnectionMember("c", time)
    late.limit(count=1)
    time.now_ms += REFRESH_MS
    late.hear(one.message())
    assert not late.admits()


def test_connections_of_a_member_that_is_gone_count_no_more_after_the_silence(time: Time) -> None:
    """A member that dies locks no address out for longer than three seconds."""
    one, other = pair(time, count=1)
    one.admits()
    tell([one, other])
    time.now_ms += SILENT_MS
    assert not other.admits()
    time.now_ms += 1
    assert other.admits()


def test_a_member_that_is_heard_again_counts_again(time: Time) -> None:
    """A silence ends with the next message, also one without news of the address."""
    one, other = pair(time, count=1)
    one.admits()
    tell([one, other])
    time.now_ms += SILENT_MS + 1
    other.hear(one.message())
    assert not other.admits()


def test_an_entry_that_its_sender_has_lost_counts_no_more_after_thirty_seconds(time: Time) -> None:
    """A supervisor that dies forgets its entries while its hub goes on; they count for 30 s at most."""
    one, other = pair(time, count=1)
    one.admits()
    tell([one, other])
    one.shared.publish = lambda _entries: None
    for _ in range(31):
        time.now_ms += 1_000
        other.hear(one.message())
    assert other.admits()


def test_a_member_that_ends_in_order_leaves_nothing_open(time: Time) -> None:
    """The last message of a member says that its connections have ended."""
    one, other = pair(time, count=1)
    one.admits()
    tell([one, other])
    one.shared.publish_last()
    tell([one, other])
    assert other.admits()


def test_a_hub_that_is_started_again_publishes_all_counts(time: Time) -> None:
    """What the earlier hub had not published comes with the next one."""
    one, other = pair(time, count=1)
    one.admits()
    one.message()
    one.shared.publish_all()
    other.hear(one.message())
    assert not other.admits()


def test_only_counts_with_a_limit_are_shared(time: Time) -> None:
    """Without a limit nothing is published; a limit that begins to apply publishes the present counts."""
    one, other = pair(time)
    one.admits()
    one.shared.flush()
    assert len(one.pending) == 0
    for member in (one, other):
        member.limit(count=1)
        member.shared.limits_changed()
    tell([one, other])
    assert not other.admits()


def test_connections_of_a_principal_count_at_all_members(time: Time) -> None:
    """A principal at its limit at one member may not log in at another one until a connection ends."""
    one, other = pair(time, principal=2)
    assert one.login()
    assert one.login()
    tell([one, other])
    assert not other.login()
    one.principals.leave(next(iter(one.principals.counts())))
    tell([one, other])
    assert other.login()


# --- rates


def test_connections_at_one_member_count_in_the_rate_of_the_other(time: Time) -> None:
    """An address whose rate is used up at one member is throttled at the other, and no other address is; windows later it is admitted."""
    one, other = pair(time, rate=1)
    while one.admits():
        pass
    tell([one, other])
    assert other.connect().outcome is Outcome.IP_THROTTLED
    assert other.admits("10.0.0.2")
    time.now_ms += WINDOW_MS + 1_000
    assert other.admits()


def test_members_in_turn_admit_as_many_as_one_process(time: Time) -> None:
    """Two members that hear each other after each connection admit within 2 % what one process admits; both know all of it."""
    one, other = pair(time, rate=2)
    alone = ConnectionMember("alone", time)
    alone.limit(rate=2)
    dice = random.Random(3)
    admitted = of_one_process = 0
    for step in range(1_500):
        time.now_ms += dice.randint(0, 700)
        admitted += (one, other)[step % 2].admits()
        of_one_process += alone.admits()
        tell([one, other])
    assert one.rate().recorded_total == other.rate().recorded_total == admitted
    assert of_one_process < 1_500
    assert abs(admitted - of_one_process) <= 0.02 * of_one_process


def test_rates_of_listener_and_process_count_at_all_members(time: Time) -> None:
    """A connection that exceeds the rate of its listener over both members waits."""
    one, other = pair(time, overall=5)
    while one.admits():
        pass
    tell([one, other])
    assert other.connect().outcome is Outcome.WAIT
    tell([one, other])
    assert other.quotas.broker_rate.recorded_total == one.quotas.broker_rate.recorded_total


def test_a_connection_that_an_address_may_not_have_is_taken_back_everywhere(time: Time) -> None:
    """A connection refused by the rate of its address counts in no rate of any member."""
    one, other = pair(time, rate=1, overall=1_000)
    while one.admits():
        pass
    tell([one, other])
    assert other.quotas.broker_rate.recorded_total == one.quotas.broker_rate.recorded_total == one.rate().recorded_total


def test_lost_and_doubled_messages_change_no_rate(time: Time) -> None:
    """After any loss and duplication each connection was counted once at the other member."""
    one, other = pair(time, overall=1_000_000)
    dice = random.Random(5)
    for _ in range(300):
        time.now_ms += 20
        one.connect()
        data = one.message()
        for _ in range(dice.choice((0, 0, 1, 2))):
            other.hear(data)
    time.now_ms += REPEAT_MS
    other.hear(one.message())
    assert other.quotas.broker_rate.recorded_total == 300


def test_after_a_long_silence_connections_of_the_last_window_count(time: Time) -> None:
    """What was counted before the present window is not recorded when a member is heard again."""
    one, other = pair(time, overall=1_000_000)
    one.connect()
    tell([one, other])
    for _ in range(600):
        time.now_ms += 100
        one.connect()
        one.message()
    other.hear(one.message())
    one.connect()
    other.hear(one.message())
    counted = other.quotas.broker_rate.recorded_total
    assert WINDOW_MS // 300 <= counted <= WINDOW_MS // 100 + 2


def test_an_address_that_was_forgotten_counts_from_its_next_connection(time: Time) -> None:
    """An entry that begins anew at its sender counts what is new, and nothing twice."""
    one, other = pair(time, rate=1_000)
    for _ in range(3):
        assert one.admits()
    assert other.admits()
    tell([one, other])
    for _ in range(2):
        time.now_ms += FORGET_MS + REFRESH_MS
        one.message()
    assert one.admits()
    other.hear(one.message())
    assert other.rate().recorded_total == 5


def test_a_member_that_starts_begins_with_the_last_window(time: Time) -> None:
    """The history is recorded at its times before clients are accepted; what a replaced supervisor had recorded counts once."""
    one, _ = pair(time, overall=1_000)
    one.connect()
    data = one.message()
    begun_ms = time()
    time.now_ms += 5_000
    started = ConnectionMember("c", time, has_begun=False)
    started.hear(data, begun_ms, is_new=False)
    assert started.quotas.broker_rate.recorded_total == 0
    started.shared.begin([])
    assert started.quotas.broker_rate.recorded_total == 1
    assert started.quotas.broker_rate.last_record_ms == begun_ms
    upgraded = ConnectionMember("d", time, has_begun=False)
    upgraded.quotas.broker_rate.continue_from(started.quotas.broker_rate.state)
    upgraded.hear(data, begun_ms, is_new=False)
    upgraded.shared.begin([upgraded.quotas.broker_rate])
    assert upgraded.quotas.broker_rate.recorded_total == 1


# --- a client that wants more than its limit


@pytest.mark.parametrize("lag_steps", [1, 5, 20])
def test_a_client_that_alternates_gains_what_it_opens_within_the_lag(time: Time, lag_steps: int) -> None:
    """A connection that is admitted is at most the first one beyond the limit and what the client opened at any member within the lag."""
    members, under_way = [ConnectionMember(name, time) for name in "abc"], deque[tuple[int, ConnectionMember, bytes]]()
    for one in members:
        one.limit(count=10)
    dice = random.Random(lag_steps)
    opened: deque[int] = deque(maxlen=lag_steps)
    for step in range(600):
        time.now_ms += 50
        while under_way and under_way[0][0] <= step:
            _, sender, data = under_way.popleft()
            for one in members:
                if one is not sender:
                    one.hear(data)
        member = members[step % 3]
        opened.append(member.admits())
        if dice.random() < 0.1 and member.quotas.ips.counts:
            member.leave()
        under_way += [(step + lag_steps, one, one.message()) for one in members]
        assert not opened[-1] or sum(one.quotas.total for one in members) <= 10 + sum(opened)


# --- bounds on memory


def test_entries_of_many_addresses_are_bounded(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with very many addresses makes no table grow without a bound, and the newest entries stay."""
    for module in (own_connections, other_members, unclaimed):
        for name in ("OWN_MAX", "ENTRIES_MAX", "ADDRESSES_MAX"):
            monkeypatch.setattr(module, name, 50, raising=False)
    one, other = pair(time, count=1, rate=1)
    for number in range(200):
        one.admits(f"10.1.0.{number}")
        tell([one, other])
    assert not other.admits("10.1.0.199")
    assert other.admits("10.1.0.0")
    assert other.shared.status().open_elsewhere == 50


def test_what_an_address_did_elsewhere_before_it_came_is_in_its_rate_at_its_times(time: Time) -> None:
    """The rate of an address that connects here for the first time has what others counted within the window, and not what is older."""
    one, other = pair(time, rate=100)
    for _ in range(30):
        assert one.admits()
        tell([one, other])
        time.now_ms += 1_000
    assert other.admits()
    assert other.rate().recorded_total == WINDOW_MS // 1_000
