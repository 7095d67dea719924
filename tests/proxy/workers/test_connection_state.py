"""The connection quotas of a supervisor that replaces another one continue, and count the connections that the old workers serve."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.enforcement.mode import Enforcement
from proxy.enforcement.policy import Policy
from proxy.net.accept.admission import Admission
from proxy.session.login.principal_connections import PrincipalConnections
from proxy.telemetry.counters import Counters
from proxy.workers.handover.channel import MESSAGE_BYTES_MAX, Channel, ChannelClosed
from proxy.workers.handover.connection_state import ConnectionState
from proxy.workers.handover.messages import ConnectionsChanged, decoded, encoded
from proxy.workers.handover.predecessor import Inherited
from quota.connections.connection_quotas import ConnectionQuotas, Decision, Outcome
from quota.connections.connection_rate import UNLIMITED_CONNECTIONS
from quota.entity import KafkaPrincipal
from tests.support.quota_calls import update_rate
from tests.support.scripted.scripted_sockets import guarded, until

NOW_MS = 50_000
LISTENERS = ("external", "internal")
ALICE, BOB = (0, "192.0.2.1"), (0, "192.0.2.2")
USER = KafkaPrincipal("User", "alice")


class Side:
    """A supervisor's counts and rates of connections."""

    def __init__(self, num_samples: int = 3, window_ms: int = 1_000, listeners: Sequence[str] = LISTENERS) -> None:
        self.quotas = ConnectionQuotas(listeners, protected="internal", num_samples=num_samples, window_ms=window_ms)
        self.quotas.update_process(UNLIMITED_CONNECTIONS, 6)
        for name in listeners:
            self.quotas.update_listener(name, UNLIMITED_CONNECTIONS, 4)
        update_rate(self.quotas.ips, None, 3)
        self.principals = PrincipalConnections()
        self.admission = Admission(self.quotas, Counters(), Policy(Enforcement()), per_cluster=True)
        self.admission.failed_logins.max_per_minute = 3
        self.state = ConnectionState(self.admission, self.principals)

    def connect(self, key: tuple[int, str] = ALICE, now_ms: int = NOW_MS, name: str = "external") -> list[Decision]:
        """Make one connection that waits as long as it has to; return what was decided about it."""
        listener = self.quotas.listeners[name]
        arrived = self.quotas.arrive(listener, now_ms)
        self.quotas.take_slot(listener)
        return [arrived, self.quotas.admit(listener, key, max(now_ms, arrived.until_ms))]

    def leave(self, key: tuple[int, str] = ALICE, name: str = "external") -> None:
        self.quotas.leave(self.quotas.listeners[name], key)

    def counts(self) -> tuple[int, list[int], dict[tuple[int, str], int], dict[KafkaPrincipal, int]]:
        listeners = [one.connections for one in self.quotas.listeners.values()]
        return self.quotas.total, listeners, dict(self.quotas.ips.counts), dict(self.principals.counts())


def hand_over(old: Side, new: Side, now_ms: int = NOW_MS) -> int:
    """Hand the state over in encoded messages; return the number of rates that continue."""
    inherited = Inherited()
    for message, descriptors in old.state.hand_over(now_ms):
        data = encoded(message)
        assert len(data) < MESSAGE_BYTES_MAX
        inherited.add(decoded(data), descriptors)
    return len(new.state.restore(inherited))


STEPS = st.lists(st.tuples(st.sampled_from([ALICE, BOB]), st.sampled_from(LISTENERS), st.integers(0, 1_500)), max_size=60)


@given(before=STEPS, between_ms=st.integers(0, 5_000), after=STEPS, num_samples=st.integers(1, 4))
async def test_a_handover_changes_no_verdict(
    before: list[tuple[tuple[int, str], str, int]],
    between_ms: int,
    after: list[tuple[tuple[int, str], str, int]],
    num_samples: int,
) -> None:
    """After a handover each decision, and each rate, equals that of one process that made all decisions."""
    one, old, new = (Side(num_samples) for _ in range(3))
    now_ms = NOW_MS
    for key, name, later_ms in before:
        now_ms += later_ms
        assert old.connect(key, now_ms, name) == one.connect(key, now_ms, name)
    now_ms += between_ms
    hand_over(old, new, now_ms)
    for key, name, later_ms in after:
        now_ms += later_ms
        assert new.connect(key, now_ms, name) == one.connect(key, now_ms, name)
        assert new.counts() == one.counts()
        assert new.quotas.broker_rate.rate(now_ms) == one.quotas.broker_rate.rate(now_ms)


async def test_samples_are_the_same_bit_for_bit() -> None:
    """The samples of the rates of process, listener and address are handed over unchanged, and obsolete ones are left out."""
    old, new = Side(), Side()
    old.connect(BOB, NOW_MS - 9_000, "internal")
    for later_ms in (0, 400, 1_100, 2_300):
        old.connect(ALICE, NOW_MS + later_ms)
    assert hand_over(old, new, NOW_MS + 2_500) == 3
    assert new.quotas.broker_rate.state == old.quotas.broker_rate.state
    assert new.quotas.listeners["external"].rate.state == old.quotas.listeners["external"].rate.state
    assert {key: rate.state for key, rate in new.quotas.ips.rates()} == {ALICE: dict(old.quotas.ips.rates())[ALICE].state}


async def test_rates_of_other_windows_begin_anew() -> None:
    """A rate with other windows, and one of a listener that is not configured any more, do not continue; counts do."""
    old, other, fewer = Side(), Side(num_samples=4), Side(listeners=("external",))
    old.connect()
    old.connect(BOB, name="internal")
    assert hand_over(old, other) == 0
    assert other.counts() == old.counts()
    assert hand_over(old, fewer) == 4
    assert fewer.counts() == (2, [1], {ALICE: 1, BOB: 1}, {})


async def test_many_addresses_with_many_samples_fit_their_messages() -> None:
    """1,000 addresses, and rates of 300 samples, are handed over in messages that fit the socket."""
    old, new = Side(num_samples=300, window_ms=1_000), Side(num_samples=300, window_ms=1_000)
    for second in range(300):
        old.connect(ALICE, NOW_MS + 1_000 * second)
    now_ms = NOW_MS + 300_000
    for number in range(1_000):
        old.connect((0, f"2001:db8:1234:5678:9abc:def0:1234:{number:x}"), now_ms)
    assert hand_over(old, new, now_ms) == 1_003
    assert new.counts() == old.counts()


async def test_failed_logins_continue() -> None:
    """An address whose logins fail too often is refused by the new supervisor, too."""
    old, new = Side(), Side()
    for _ in range(3):
        old.admission.failed_logins.note(ALICE[1], NOW_MS)
    hand_over(old, new)
    assert new.admission.failed_logins.refuses(ALICE[1], NOW_MS)
    assert not new.admission.failed_logins.refuses(BOB[1], NOW_MS)


async def test_connections_of_old_workers_hold_their_limits() -> None:
    """While old workers serve connections, the limits of process, address and principal count them."""
    old, new = Side(), Side()
    old.connect()
    assert old.principals.enter(USER, only_observes=False)
    hand_over(old, new)
    new.quotas.update_process(1, UNLIMITED_CONNECTIONS)
    new.quotas.ips.max_connections = new.principals.max_connections = 1
    assert not new.quotas.has_slot(new.quotas.listeners["external"])
    assert new.connect()[1].outcome is Outcome.TOO_MANY_FROM_IP
    assert not new.principals.enter(USER, only_observes=False)


class Reported:
    """An old and a new supervisor after a handover, with the channel between them."""

    def __init__(self, old: Side, new: Side) -> None:
        self.old, self.new = old, new
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel, self._received = Channel(one), Channel(other)
        self.reporting = asyncio.ensure_future(old.state.report(self.channel))
        self.following = asyncio.ensure_future(new.state.follow(self._changes()))

    async def _changes(self) -> AsyncIterator[ConnectionsChanged]:
        try:
            while True:
                message, _ = await self._received.receive()
                assert isinstance(message, ConnectionsChanged)
                yield message
        except ChannelClosed:
            self._received.close()

    async def end_old(self) -> None:
        """End the old supervisor, and wait until the new one knows."""
        self.reporting.cancel()
        await asyncio.wait([self.reporting])
        self.channel.close()
        await guarded(self.following)


async def test_an_old_connection_is_released_when_it_ends() -> None:
    """The new supervisor releases a connection of an old worker when it ends, and the rest when the old supervisor ends."""
    old, new = Side(), Side()
    for key in (ALICE, ALICE, BOB):
        old.connect(key)
    assert old.principals.enter(USER, only_observes=False)
    hand_over(old, new)
    new.connect(BOB)
    reported = Reported(old, new)
    old.leave(ALICE)
    old.principals.leave(USER)
    await until(lambda: new.counts() == (3, [3, 0], {ALICE: 1, BOB: 2}, {}))
    await reported.end_old()
    assert new.counts() == (1, [1, 0], {BOB: 1}, {})


async def test_a_change_during_the_handover_is_not_lost() -> None:
    """A connection that ends, and one that is admitted, between the handover and the first report are counted."""
    old, new = Side(), Side()
    old.connect(ALICE)
    hand_over(old, new)
    old.leave(ALICE)
    old.connect(BOB, NOW_MS + 2_000)
    reported = Reported(old, new)
    await until(lambda: new.counts() == (1, [1, 0], {BOB: 1}, {}))
    await reported.end_old()
    assert new.counts() == (0, [0, 0], {}, {})


async def test_upgrades_that_overlap_count_every_generation() -> None:
    """A supervisor that is replaced while older workers drain hands their connections over, and reports their ends."""
    first, second, third = Side(), Side(), Side()
    first.connect(ALICE)
    hand_over(first, second)
    second.connect(BOB)
    early = Reported(first, second)
    hand_over(second, third)
    late = Reported(second, third)
    assert third.counts() == (2, [2, 0], {ALICE: 1, BOB: 1}, {})
    await early.end_old()
    await until(lambda: third.counts() == (1, [1, 0], {BOB: 1}, {}))
    await late.end_old()
    assert third.counts() == (0, [0, 0], {}, {})


async def test_a_new_supervisor_that_ends_early_stops_the_reports() -> None:
    """The old supervisor reports no more when the new one has ended, and its own counts continue."""
    old, new = Side(), Side()
    old.connect(ALICE)
    old.connect(BOB)
    hand_over(old, new)
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.close()
    channel = Channel(one)
    old.leave(ALICE)
    with pytest.raises(ChannelClosed):
        await guarded(old.state.report(channel))
    channel.close()
    old.leave(BOB)
    assert old.counts() == (0, [0, 0], {}, {})


async def test_a_handover_that_fails_changes_nothing() -> None:
    """After a failed handover the old supervisor continues with its counts, and can hand over again."""
    old, new = Side(), Side()
    old.connect(ALICE)
    old.state.hand_over(NOW_MS)
    old.state.keep()
    old.connect(BOB)
    hand_over(old, new)
    assert new.counts() == old.counts() == (2, [2, 0], {ALICE: 1, BOB: 1}, {})


async def test_no_count_of_another_process_falls_below_zero() -> None:
    """Reports of more ends than connections change only the counts of the old workers."""
    old, new = Side(), Side()
    old.connect(ALICE)
    hand_over(old, new)
    new.connect(ALICE)

    async def changes() -> AsyncIterator[ConnectionsChanged]:
        yield ConnectionsChanged([("external", -5)], [(*ALICE, -5), (*BOB, -1)], [("User", "bob", -1)])

    await new.state.follow(changes())
    assert new.counts() == (1, [1, 0], {ALICE: 1}, {})
