"""Connection quotas: worked examples, and properties that hold for any history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.connections.client_address import address_group, plain_address
from quota.connections.connection_quotas import ACCEPTED, ConnectionQuotas, Decision, ListenerQuota, Outcome
from quota.connections.connection_rate import UNLIMITED_CONNECTIONS, ConnectionRate
from quota.connections.ip_connections import INACTIVE_MS, IpConnections
from quota.errors import QuotaError
from quota.sensor import Rate
from tests.support.quota_calls import update_rate

NOW_MS = 50_000
ALICE, BOB = (0, "192.0.2.1"), (0, "192.0.2.2")


def proxy(*listeners: str, protected: str | None = None, num_samples: int = 2) -> ConnectionQuotas:
    """Return connection quotas without a limit, with two samples of one second."""
    return ConnectionQuotas(listeners or ("external",), protected=protected, num_samples=num_samples)


def listener_of(quotas: ConnectionQuotas, name: str = "external") -> ListenerQuota:
    return quotas.listeners[name]


def connect_one(quotas: ConnectionQuotas, key: tuple[int, str] = ALICE, now_ms: int = NOW_MS, name: str = "external") -> Decision:
    """Make one connection that waits as long as the rates require; return WAIT when it then has no slot."""
    listener = listener_of(quotas, name)
    decision = quotas.arrive(listener, now_ms)
    if decision is not ACCEPTED and not quotas.has_slot(listener):
        return decision
    quotas.take_slot(listener)
    return quotas.admit(listener, key, max(now_ms, decision.until_ms))


def test_an_address_over_its_rate_is_held_and_not_counted() -> None:
    """The 21st connection at a rate of 20 is closed after 50 ms, at 30 after 33 ms, and the average of both waits is 41.5 ms."""
    quotas = proxy("external", "admin")
    update_rate(quotas.ips, ALICE[1], 20)
    assert [connect_one(quotas) for _ in range(20)] == [ACCEPTED] * 20
    assert connect_one(quotas) == Decision(Outcome.IP_THROTTLED, delay_ms=50)
    listener = listener_of(quotas)
    (of_ip,) = quotas.ips.rates()
    assert [rate.rate(NOW_MS) for rate in (quotas.broker_rate, listener.rate, of_ip.rate)] == [20.0, 20.0, 20.0]
    update_rate(quotas.ips, ALICE[1], 30)
    assert [connect_one(quotas) for _ in range(10)] == [ACCEPTED] * 10
    assert connect_one(quotas) == Decision(Outcome.IP_THROTTLED, delay_ms=33)
    assert listener.ip_throttle_time.peek(NOW_MS) == 41.5
    assert (quotas.total, listener.connections, quotas.ips.counts) == (30, 30, {ALICE: 30})


@pytest.mark.parametrize("name", ["external", "internal"])
def test_a_rate_of_zero_admits_no_connection(name: str) -> None:
    """At a rate of 0 a connection is closed after one window and not counted, also on a protected listener."""
    quotas = proxy("external", "internal", protected="internal")
    update_rate(quotas.ips, None, 0)
    assert connect_one(quotas, name=name) == Decision(Outcome.IP_THROTTLED, delay_ms=1_000)
    assert quotas.broker_rate.rate(NOW_MS) == listener_of(quotas, name).rate.rate(NOW_MS) == 0.0
    assert (quotas.total, quotas.ips.counts) == (0, {})


def test_the_rate_of_the_process_makes_listeners_wait() -> None:
    """At a process rate of 10 the 11th connection waits 100 ms, and a protected listener does not wait for the others."""
    quotas = proxy("external", "internal", protected="internal")
    quotas.update_process(UNLIMITED_CONNECTIONS, 10)
    assert [connect_one(quotas) for _ in range(10)] == [ACCEPTED] * 10
    decision = quotas.arrive(listener_of(quotas), NOW_MS)
    assert decision == Decision(Outcome.WAIT, NOW_MS + 100, for_slot=False, delay_ms=100)
    assert listener_of(quotas).throttle_time.peek(NOW_MS) == 100.0
    assert quotas.arrive(listener_of(quotas, "internal"), NOW_MS) is ACCEPTED


def test_an_address_may_have_so_many() -> None:
    """An address may have 3 connections by default and 5 by an override; one too many is refused uncounted, and a closed one frees its
    place.
    """
    quotas = proxy()
    quotas.ips.max_connections, quotas.ips.max_overrides = 3, {BOB[1]: 5}
    assert [connect_one(quotas) for _ in range(4)] == [ACCEPTED] * 3 + [Decision(Outcome.TOO_MANY_FROM_IP, limit=3)]
    assert [connect_one(quotas, BOB) for _ in range(6)] == [ACCEPTED] * 5 + [Decision(Outcome.TOO_MANY_FROM_IP, limit=5)]
    assert quotas.leave(listener_of(quotas), ALICE) == 2
    assert connect_one(quotas) is ACCEPTED
    assert quotas.total == 8


def test_a_sole_listener_is_not_protected() -> None:
    """With at most 3 connections and 2 per second the 3rd waits 500 ms, and the 4th waits 1,000 ms and then for a slot."""
    quotas = proxy("external", protected="external")
    quotas.update_process(3, 2)
    assert [connect_one(quotas) for _ in range(3)] == [ACCEPTED] * 3
    assert quotas.arrive(listener_of(quotas), NOW_MS + 500) == Decision(Outcome.WAIT, NOW_MS + 1_000, for_slot=True, delay_ms=500)
    assert not quotas.has_slot(listener_of(quotas))
    quotas.leave(listener_of(quotas), ALICE)
    assert quotas.has_slot(listener_of(quotas))


def test_a_protected_listener_goes_beyond_and_others_make_room() -> None:
    """A protected listener may exceed the limit of the process within its own, and connections of another one have to be closed."""
    quotas = proxy("external", "internal", protected="internal")
    quotas.update_process(2, UNLIMITED_CONNECTIONS)
    quotas.update_listener("internal", 2, UNLIMITED_CONNECTIONS)
    assert [connect_one(quotas), connect_one(quotas)] == [ACCEPTED] * 2
    assert connect_one(quotas) == Decision(Outcome.WAIT, NOW_MS, for_slot=True)
    assert not quotas.exceeds_max_connections
    assert [connect_one(quotas, name="internal").outcome for _ in range(3)] == [Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.WAIT]
    assert quotas.exceeds_max_connections


def test_limits_that_come_and_go() -> None:
    """A default rate binds existing addresses, an override takes precedence, and without both nothing is recorded."""
    ips = IpConnections(2, 1_000)
    assert ips.record(ALICE, NOW_MS) == 0
    assert len(ips) == 0
    update_rate(ips, None, 5)
    ips.record(ALICE, NOW_MS)
    update_rate(ips, ALICE[1], 7)
    ips.record(BOB, NOW_MS)
    assert [rate.bound for _, rate in ips.rates()] == [7, 5]
    ips.replace_rates(None, {})
    assert [rate.bound for _, rate in ips.rates()] == [UNLIMITED_CONNECTIONS] * 2
    before = [rate.recorded_total for _, rate in ips.rates()]
    assert ips.record(ALICE, NOW_MS) == 0
    assert [rate.recorded_total for _, rate in ips.rates()] == before


def test_a_rate_is_forgotten_after_an_hour_of_silence() -> None:
    """The rate of an address is removed more than an hour after its last record, and others stay."""
    ips = IpConnections()
    update_rate(ips, None, 5)
    ips.record(ALICE, 0)
    ips.record(BOB, 1_000)
    assert ips.expire(INACTIVE_MS) == 0
    assert ips.expire(INACTIVE_MS + 1) == 1
    assert [key for key, _ in ips.rates()] == [BOB]


def test_the_table_of_rates_is_bounded() -> None:
    """When the table is full the rate with the oldest record is removed; counts of connections are never removed."""
    ips = IpConnections(rates_max=3)
    update_rate(ips, None, 5)
    keys = [(0, f"192.0.2.{number}") for number in range(5)]
    for key in keys[:3]:
        ips.record(key, 0)
        ips.enter(key)
    ips.record(keys[0], 1)
    ips.record(keys[3], 2)
    assert [key for key, _ in ips.rates()] == [keys[2], keys[0], keys[3]]
    assert (ips.forgotten, len(ips.counts)) == (1, 3)


def test_a_connection_that_was_not_counted_cannot_leave() -> None:
    """Removing a connection of an address without connections raises an error."""
    quotas = proxy()
    with pytest.raises(QuotaError, match=r"192\.0\.2\.1"):
        quotas.leave(listener_of(quotas), ALICE)
    assert quotas.total == 0


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0::7", "2001:db8::7"),
        ("fe80::1%eth0", "fe80::1"),
        ("kafka.example.org", "kafka.example.org"),
    ],
)
def test_plain_address(host: str, expected: str) -> None:
    """A client has one address, in whatever form its socket reports it."""
    assert plain_address(host) == expected


def test_ipv6_by_prefix() -> None:
    """Addresses of one /64 count as one, an address with an override counts by itself, and IPv4 addresses are never grouped."""
    assert address_group("2001:db8::7", 64) == address_group("2001:db8::8", 64) == "2001:db8::/64"
    assert address_group("2001:db8::7", 128) == "2001:db8::7"
    ips = IpConnections()
    ips.ipv6_prefix_bits = 64
    update_rate(ips, "2001:db8::9", 3)
    hosts = ("2001:db8::7", "2001:db8::9", "192.0.2.1", "::ffff:192.0.2.1")
    assert [ips.key_of(4, host) for host in hosts] == [(4, "2001:db8::/64"), (4, "2001:db8::9"), (4, "192.0.2.1"), (4, "192.0.2.1")]


def test_blocked_time_is_a_share_of_the_last_minute() -> None:
    """Finished waits count with their length and a running one from its start, and reading the share changes nothing."""
    listener = listener_of(proxy())
    assert listener.blocked_ratio(0) == 0.0
    listener.record_blocked(3_000, 30_000)
    assert listener.blocked_ratio(30_000) == listener.blocked_ratio(30_000) == 0.1
    assert listener.blocked_ratio(36_000, 30_000) == pytest.approx(9_000 / 36_000)
    assert listener.blocked_ratio(10_000_000, 0) == 1.0
    assert listener.blocked_ms == 3_000


STEPS = st.lists(st.tuples(st.sampled_from(["alice", "bob"]), st.integers(0, 700), st.booleans()), max_size=120)


@given(steps=STEPS, bound=st.integers(1, 9), most=st.integers(1, 5), slots=st.integers(1, 8))
def test_counts_equal_the_open_connections(steps: list[tuple[str, int, bool]], bound: int, most: int, slots: int) -> None:
    """For any sequence of connects and closes the counts equal the open connections, no limit is exceeded, and all counts end at zero."""
    quotas = proxy("external", "internal", protected="internal")
    quotas.update_process(slots, UNLIMITED_CONNECTIONS)
    update_rate(quotas.ips, None, bound)
    quotas.ips.max_connections = most
    inside: list[tuple[int, str]] = []
    now_ms = NOW_MS
    for who, later_ms, leaves in steps:
        now_ms += later_ms
        key = ALICE if who == "alice" else BOB
        if leaves and key in inside:
            inside.remove(key)
            quotas.leave(listener_of(quotas), key)
        elif connect_one(quotas, key, now_ms) is ACCEPTED:
            inside.append(key)
        assert quotas.total == listener_of(quotas).connections == len(inside) <= slots
        assert quotas.ips.counts == {one: inside.count(one) for one in set(inside)}
        assert all(count <= most for count in quotas.ips.counts.values())
    for key in inside:
        quotas.leave(listener_of(quotas), key)
    assert (quotas.total, quotas.ips.counts) == (0, {})


@given(gaps=st.lists(st.integers(0, 1_500), max_size=80), bound=st.integers(1, 12), num_samples=st.integers(2, 11))
def test_who_waits_as_announced_stays_within_the_rate(gaps: list[int], bound: int, num_samples: int) -> None:
    """Connections that wait as announced never exceed a burst plus the rate."""
    quotas = proxy(num_samples=num_samples)
    quotas.update_process(UNLIMITED_CONNECTIONS, bound)
    now_ms, through = NOW_MS, []
    for gap in gaps:
        now_ms = max(now_ms + gap, quotas.arrive(listener_of(quotas), now_ms + gap).until_ms)
        through.append(now_ms)
    windows_s = (num_samples - 1) * 1.0
    for at_ms in through:
        within = [other for other in through if at_ms <= other < at_ms + windows_s * 1_000]
        assert len(within) <= 2 * bound * windows_s + 1


@given(times=st.lists(st.integers(0, 3_000), max_size=60), looks=st.lists(st.booleans(), min_size=60, max_size=60))
def test_looking_changes_nothing(times: list[int], looks: list[bool]) -> None:
    """Measuring a rate between records does not change later measurements."""
    watched, alone = ConnectionRate(3, 3, 1_000), ConnectionRate(3, 3, 1_000)
    now_ms = 0
    for gap, look in zip(times, looks, strict=False):
        now_ms += gap
        if look:
            watched.rate(now_ms + 10)
        assert watched.record_one(now_ms) == alone.record_one(now_ms)
        assert watched.rate(now_ms) == alone.rate(now_ms)


@given(times=st.lists(st.integers(0, 3_000), max_size=60))
def test_without_a_bound_the_rate_is_the_same(times: list[int]) -> None:
    """Without a bound the samples equal those of a rate that is measured at each record."""
    rate, measured = ConnectionRate(UNLIMITED_CONNECTIONS, 3, 1_000), Rate(3, 1_000)
    now_ms = 0
    for gap in times:
        now_ms += gap
        assert rate.record_one(now_ms) == 0
        measured.record(1.0, now_ms)
        measured.measure(now_ms)
    assert rate.rate(now_ms) == measured.rate(now_ms)


def test_rates_that_are_switched_off_count_nothing() -> None:
    """With rates disabled nothing is recorded and no connection waits for a rate, but a slot is still required."""
    quotas = proxy()
    quotas.update_process(3, 1)
    update_rate(quotas.ips, None, 1)
    listener = listener_of(quotas)
    for _ in range(3):
        assert quotas.arrive(listener, NOW_MS, counts=False) is ACCEPTED
        quotas.take_slot(listener)
        assert quotas.admit(listener, ALICE, NOW_MS, counts=False, was_counted=False) is ACCEPTED
    assert quotas.arrive(listener, NOW_MS, counts=False) == Decision(Outcome.WAIT, NOW_MS, for_slot=True)
    assert quotas.broker_rate.rate(NOW_MS) == listener.rate.rate(NOW_MS) == 0.0
    assert list(quotas.ips.rates()) == []


def test_only_what_was_counted_is_taken_back() -> None:
    """When an address exceeds its rate while the rates of process and listener are disabled, those rates stay unchanged."""
    quotas = proxy()
    update_rate(quotas.ips, None, 0)
    listener = listener_of(quotas)
    quotas.take_slot(listener)
    assert quotas.admit(listener, ALICE, NOW_MS, was_counted=False).outcome is Outcome.IP_THROTTLED
    assert quotas.broker_rate.rate(NOW_MS) == listener.rate.rate(NOW_MS) == 0.0
    assert quotas.total == 0
