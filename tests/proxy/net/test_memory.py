"""The byte budget of the process."""

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
    """The part of a transport that a channel uses."""

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.reads = True

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def get_extra_info(self, _name: str) -> None:
        return None

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


class FakeChannel(Channel):
    """A channel with short frames only."""

    released_bytes = 0


class FakeConnection:
    """Two channels and a session that buffers bytes."""

    def __init__(self, account: BufferAccount, *, to_client: int = 0, to_broker: int = 0, kept: int = 0, host: str = "10.0.0.1") -> None:
        self.client, self.broker = FakeChannel(self), FakeChannel(self)
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
        """Record the close reason."""
        assert detail
        self.closing = True
        self.closed.append(reason)

    def abort_client(self) -> None:
        """Drop the client's socket."""
        assert self.closing
        self.set()

    @property
    def reads(self) -> tuple[bool, bool]:
        """Return whether the client and the broker are read."""
        return self.client.transport.reads, self.broker.transport.reads


class ProxyFixture:
    """A buffer budget with its counters."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.account = BufferAccount()
        self.budget = BufferBudget(self.counters, BUDGET, self.account)
        self.connections: list[FakeConnection] = []

    def connect(self, **held: Any) -> FakeConnection:
        """Return a connection with these buffered bytes."""
        connection = FakeConnection(self.account, **held)
        self.connections.append(connection)
        return connection

    def check(self, now_ms: int = 0) -> tuple[int, bool]:
        """Run one check; return the pressure and whether clients are accepted."""
        open_ones = [connection for connection in self.connections if not connection.closing]
        self.budget.check(open_ones, [connection for connection in self.connections if connection.closing], now_ms)
        return self.counters.memory_pressure, self.budget.accepting


def test_everything_that_is_held_counts() -> None:
    """Buffered bytes count unsent bytes of both sides, sessions' bytes, and those of closing connections."""
    proxy = ProxyFixture()
    proxy.connect(to_client=1, to_broker=20, kept=4_300)
    proxy.connect()
    proxy.connect(to_client=50_000).closing = True
    proxy.check()
    assert proxy.counters.buffered_bytes == 54_321
    assert (proxy.counters.buffer_bytes_max, proxy.counters.memory_pressure) == (BUDGET, NO_PRESSURE)


def test_the_largest_backlogs_pause_first_and_only_as_many_as_needed() -> None:
    """At 90 % only the source of the largest backlog is paused."""
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
    """A backlog to the broker pauses the client, not the broker."""
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
    """Pausing and refusing end at lower levels than they begin."""
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
    """A side without a backlog is read again although the pressure continues."""
    proxy = ProxyFixture()
    rewriting = proxy.connect(to_client=166 * KIB, kept=832 * KIB)
    assert proxy.check() == (REFUSING, False)
    assert rewriting.reads == (True, False)
    rewriting.set()
    proxy.check()
    assert rewriting.reads == (True, True)
    assert proxy.counters.memory_pressure == PAUSING


def test_other_reasons_to_pause_stay() -> None:
    """A side that is paused for another reason stays paused when memory is free."""
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
    """A lost or closing connection is neither paused nor resumed."""
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
    """A changed budget applies to the next check."""
    proxy = ProxyFixture()
    proxy.connect(to_client=950 * KIB)
    assert proxy.check() == (REFUSING, False)
    proxy.budget.bytes_max = 2 * BUDGET
    assert proxy.check() == (NO_PRESSURE, True)
    assert proxy.account.bytes_max == 2 * BUDGET


def test_who_takes_nothing_under_pressure_goes_after_five_seconds() -> None:
    """After `UNTAKEN_MS` of pressure one slow reader of the address with the largest backlog is closed."""
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
    """A client is not closed because its broker reads nothing."""
    proxy = ProxyFixture()
    upload = proxy.connect(to_broker=950 * KIB)
    proxy.check(0)
    proxy.check(10 * UNTAKEN_MS)
    assert (upload.closed, upload.reads) == ([], (False, True))


def test_frames_give_way_before_unread_answers_use_up_their_room() -> None:
    """Unsent bytes reduce the limit for frames, down to 40 % of the budget."""
    proxy = ProxyFixture()
    reader = proxy.connect(to_client=300 * KIB)
    proxy.check()
    assert proxy.account.frames_bytes_max == pytest.approx(600 * KIB)
    reader.set(to_client=900 * KIB)
    proxy.check()
    assert proxy.account.frames_bytes_max == pytest.approx(400 * KIB)


def test_a_line_about_memory_pressure_keeps_its_level() -> None:
    """The log line has the pressure, and is a warning when it rises and an info when it falls."""
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
