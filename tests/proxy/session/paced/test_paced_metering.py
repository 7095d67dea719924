"""What a paced group meters: what the schedule let pass and after which wait, and what passed without a check."""

import pytest

from proxy.enforcement.mode import Mode
from proxy.enforcement.paced.group import PacedGroup
from proxy.meter.meter import Meter
from quota.paced_schedule import MS_NS
from tests.proxy.session.paced.test_paced_fetch import ask, fetched_of
from tests.proxy.session.paced.test_paced_produce import answer, use_burst
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import produce_of


class Notes(Meter):
    """A meter that lists (kind, value, wait in ms)."""

    __slots__ = ("noted",)

    def __init__(self) -> None:
        super().__init__(lambda _batch: True, lambda _group: ({}, {}), 0)
        self.noted: list[tuple[str, int, int]] = []

    def admitted(self, group: object, value: int, waited_ms: int, now_ms: int, conn_id: int, api_index: int) -> None:
        self.noted.append(("checked", value, waited_ms))

    def record_unchecked(self, group: object, value: int, now_ms: int, conn_id: int, api_index: int, kind: int = 1) -> None:
        self.noted.append(("unchecked", value, 0))


@pytest.fixture
def notes(paced: ProxyFixture) -> Notes:
    """Return what is metered."""
    meter = paced.settings.meter = Notes()
    return meter


def test_a_produce_is_metered_with_its_wait(paced: ProxyFixture, notes: Notes) -> None:
    """A Produce that waited for half a second is metered when it passes, with this wait; one that did not wait, without."""
    peer = paced.connect()
    use_burst(peer)
    peer.sends(produce_of(100, 2))
    paced.wait(500)
    peer.answers(answer(2))
    assert notes.noted == [("checked", 1_500, 0), ("checked", 100, 500)]


def test_a_fetch_is_metered_with_the_wait_before_it_went(paced: ProxyFixture, notes: Notes) -> None:
    """A fetch is metered at its response. Its wait is the one before it was forwarded, without the time of the broker."""
    peer = paced.connect()
    peer.asks(ask(1), fetched_of(500, 1))
    paced.connect().asks(ask(1), fetched_of(1_400, 1))
    del notes.noted[:]
    peer.sends(ask(2))
    waited_ms = 0
    while not peer.forwarded():
        paced.wait(1)
        waited_ms += 1
    paced.wait(250)
    peer.answers(fetched_of(300, 2))
    assert notes.noted == [("checked", 300, waited_ms)]
    assert waited_ms > 1_000


def test_what_observe_lets_pass_before_its_time_is_unchecked(paced: ProxyFixture, notes: Notes) -> None:
    """In `observe` a fetch and a Produce that would have waited are metered as unchecked, without a wait."""
    paced.enforcement.mode = Mode.OBSERVE
    peer = paced.connect()
    use_burst(peer)
    peer.asks(produce_of(100, 2), answer(2))
    peer.asks(ask(3), fetched_of(3_000, 3))
    peer.asks(ask(4), fetched_of(100, 4))
    assert notes.noted[1:2] == [("unchecked", 100, 0)]
    assert notes.noted[-1] == ("unchecked", 100, 0)


def test_a_response_behind_one_that_was_not_checked_is_not_checked() -> None:
    """What passed before its time moves the schedule on; a response that arrives meanwhile is no proof that its request was early."""
    group = PacedGroup({}, 1_000.0, burst_ns=1_000 * MS_NS)
    group.record(1_000, 0)
    assert group.checked_amount(10, 10, 0) == 10
    assert group.checked_amount(3_000, 0, 0) == 0
    group.record(3_000, 0)
    assert group.checked_amount(10, 10, 2_900) == 0
    assert group.checked_amount(10, 10, 3_000) == 10
    group.record(5_000, 3_000)
    assert group.checked_amount(10, 10, 3_000) == 10, "the schedule is late by what had been checked, which is early"
