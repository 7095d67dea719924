"""The byte budget of the process, with connections of any size."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.base.close_reason import CloseReason
from proxy.base.pause_reason import MEMORY, PEER_FULL, THROTTLE
from proxy.net.buffer_budget import NO_PRESSURE, PAUSING, REFUSING, UNTAKEN_MS, BufferBudget
from proxy.net.relay.flow import Channel
from proxy.session.buffers import BufferAccount
from proxy.telemetry.counters import Counters
from tests.proxy.telemetry.test_log import lines_of

KIB = 1024
BUDGET = 1_000 * KIB


class FakeTransport:
    """What a channel asks of its transport."""

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.reads = True

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert high > low

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True


class FakeBroker(Channel):
    """A broker's channel whose answers are short."""

    released_bytes = 0


class FakeConnection:
    """Two channels and a session that keeps bytes."""

    def __init__(self, account: BufferAccount, *, to_client: int = 0, to_broker: int = 0, kept: int = 0, host: str = "10.0.0.1") -> None:
        self.client, self.broker = Channel(self), FakeBroker(self)
        self.client.attach(FakeTransport())
        self.broker.attach(FakeTransport())
        self.closing = False
        self.closed: list[CloseReason] = []
        self.session = SimpleNamespace(buffer=account.open(host))
        self.session.buffer.keep(kept)
        self.set(to_client=to_client, to_broker=to_broker)

    def set(self, *, to_client: int = 0, to_broker: int = 0) -> None:
        self.client.transport.unsent_bytes = to_client
        self.broker.transport.unsent_bytes = to_broker

    def close(self, reason: CloseReason, detail: str) -> None:
        """End, for a reason."""
        assert detail
        self.closing = True
        self.closed.append(reason)

    def abort_client(self) -> None:
        """Drop the client's socket."""
        assert self.closing
        self.set()

    @property
    def reads(self) -> tuple[bool, bool]:
        """Whether the client and the broker are read."""
        return self.client.transport.reads, self.broker.transport.reads


class ProxyFixture:
    """A budget and what it counts."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.account = BufferAccount()
        self.budget = BufferBudget(self.counters, BUDGET, self.account)
        self.connections: list[FakeConnection] = []

    def connect(self, **held: Any) -> FakeConnection:
        """A connection that holds so much."""
        connection = FakeConnection(self.account, **held)
        self.connections.append(connection)
        return connection

    def check(self, now_ms: int = 0) -> tuple[int, bool]:
        """Look once; return the pressure and whether any client is accepted."""
        open_ones = [connection for connection in self.connections if not connection.closing]
        self.budget.check(open_ones, [connection for connection in self.connections if connection.closing], now_ms)
        return self.counters.memory_pressure, self.budget.accepting


def test_everything_that_is_held_counts() -> None:
    """Unsent bytes of both sides, what the sessions keep, and what closed connections still send."""
    proxy = ProxyFixture()
    proxy.connect(to_client=1, to_broker=20, kept=4_300)
    proxy.connect()
    proxy.connect(to_client=50_000).closing = True
    proxy.check()
    assert proxy.counters.buffered_bytes == 54_321
    assert (proxy.counters.buffer_bytes_max, proxy.counters.memory_pressure) == (BUDGET, NO_PRESSURE)


def test_the_largest_backlogs_pause_first_and_only_as_many_as_needed() -> None:
    """At 90 % it is the side that fills a backlog which is not read; the others go on."""
    proxy = ProxyFixture()
    large, small = proxy.connect(to_client=500 * KIB), proxy.connect(to_broker=400 * KIB)
    assert proxy.check() == (PAUSING, True)
    assert (large.reads, small.reads) == ((True, False), (True, True))
    assert large.broker.paused_for == ("memory",)
    large.set(to_client=505 * KIB)
    small.set(to_broker=410 * KIB)
    assert proxy.check() == (PAUSING, True)
    assert (large.reads, small.reads, proxy.counters.memory_pauses) == ((True, False), (True, True), 1)


def test_an_upload_that_the_broker_does_not_take_pauses_its_client() -> None:
    """Bytes on their way to the broker stop the client's side, not the broker's."""
    proxy = ProxyFixture()
    upload = proxy.connect(to_broker=900 * KIB)
    proxy.check()
    assert upload.reads == (False, True)


@pytest.mark.parametrize(
    ("percents", "levels"),
    [
        pytest.param([89, 90, 85, 80, 79, 89, 90], [0, 1, 1, 1, 0, 0, 1], id="pause-from-90-to-below-80"),
        pytest.param([94, 95, 91, 90, 89, 94, 79], [1, 2, 2, 2, 1, 1, 0], id="refuse-from-95-to-below-90"),
        pytest.param([100, 10, 0], [2, 0, 0], id="all-at-once"),
    ],
)
def test_what_began_ends_well_below_where_it_began(percents: list[int], levels: list[int]) -> None:
    """Hysteresis: a sum that hovers about a mark does not switch to and fro."""
    proxy = ProxyFixture()
    reader = proxy.connect()
    seen = []
    for percent in percents:
        reader.set(to_client=percent * BUDGET // 100)
        level, accepting = proxy.check()
        assert accepting == (level < REFUSING)
        assert reader.reads == (True, level == NO_PRESSURE)
        seen.append(level)
    assert seen == levels


def test_a_side_whose_backlog_is_gone_is_read_again_whatever_others_hold() -> None:
    """A frame that must become whole before it may leave is never starved by the budget that it fills."""
    proxy = ProxyFixture()
    rewriting = proxy.connect(to_client=166 * KIB, kept=832 * KIB)
    assert proxy.check() == (REFUSING, False)
    assert rewriting.reads == (True, False)
    rewriting.set()
    proxy.check()
    assert rewriting.reads == (True, True)
    assert proxy.counters.memory_pressure == PAUSING


def test_other_reasons_to_pause_stay() -> None:
    """Memory is one reason in a set: reading goes on when the set is empty."""
    proxy = ProxyFixture()
    reader = proxy.connect(to_client=950 * KIB)
    reader.broker.pause(PEER_FULL)
    proxy.check()
    reader.set()
    proxy.check()
    assert reader.broker.paused_for == ("peer_full",)
    reader.broker.resume(PEER_FULL | THROTTLE | MEMORY)
    assert reader.reads == (True, True)


def test_a_connection_that_ended_is_forgotten() -> None:
    """Neither a lost transport nor one that is closing is paused or read again."""
    proxy = ProxyFixture()
    gone = proxy.connect(to_client=950 * KIB)
    proxy.check()
    gone.broker.lost = True
    gone.broker.transport.resume_reading = None
    proxy.connections.clear()
    assert proxy.check() == (NO_PRESSURE, True)
    gone.closing = True
    proxy.connections.append(gone)
    proxy.check()
    assert gone.client.paused_for == ()


def test_a_reload_changes_the_budget() -> None:
    """The next look measures by the new limit."""
    proxy = ProxyFixture()
    proxy.connect(to_client=950 * KIB)
    assert proxy.check() == (REFUSING, False)
    proxy.budget.bytes_max = 2 * BUDGET
    assert proxy.check() == (NO_PRESSURE, True)
    assert proxy.account.bytes_max == 2 * BUDGET


def test_who_takes_nothing_under_pressure_goes_after_five_seconds() -> None:
    """Of those that were paused, where most waits at one address first, and only until the sum is small again; one that took it stays."""
    proxy = ProxyFixture()
    many = [proxy.connect(to_client=200 * KIB, host="10.0.0.66") for _ in range(3)]
    single = proxy.connect(to_client=250 * KIB)
    took = proxy.connect(to_client=100 * KIB)
    assert proxy.check(1_000) == (REFUSING, False)
    took.set()
    proxy.check(1_000 + UNTAKEN_MS - 1)
    assert not any(connection.closed for connection in proxy.connections)
    proxy.check(1_000 + UNTAKEN_MS)
    assert [connection.closed for connection in many].count([CloseReason.SLOW_READER]) == 1
    assert (single.closed, took.closed) == ([], [])
    assert proxy.check(1_001 + UNTAKEN_MS) == (NO_PRESSURE, True)


def test_an_upload_that_its_broker_does_not_take_is_not_the_clients_fault() -> None:
    """Only clients that take nothing go; a broker that takes nothing has its own deadline."""
    proxy = ProxyFixture()
    upload = proxy.connect(to_broker=950 * KIB)
    proxy.check(0)
    proxy.check(10 * UNTAKEN_MS)
    assert (upload.closed, upload.reads) == ([], (False, True))


def test_frames_give_way_before_unread_answers_use_up_their_room() -> None:
    """Bytes unsent at the last measurement reduce the limit for frames, but never below 40 % of the whole."""
    proxy = ProxyFixture()
    reader = proxy.connect(to_client=300 * KIB)
    proxy.check()
    assert proxy.account.frames_bytes_max == pytest.approx(600 * KIB)
    reader.set(to_client=900 * KIB)
    proxy.check()
    assert proxy.account.frames_bytes_max == pytest.approx(400 * KIB)


def test_a_line_about_memory_pressure_keeps_its_level() -> None:
    """The line says how high the pressure is, and is a warning while it rises and an information when it has fallen."""
    proxy = ProxyFixture()
    proxy.connect(to_client=int(0.97 * BUDGET))

    def rise_and_fall() -> None:
        proxy.check()
        proxy.connections.clear()
        proxy.check(1_000)

    lines = lines_of(rise_and_fall)
    assert [(line["event"], line["level"], line["pressure"]) for line in lines] == [
        ("memory_pressure", "warning", 2),
        ("memory_pressure", "info", NO_PRESSURE),
    ]
