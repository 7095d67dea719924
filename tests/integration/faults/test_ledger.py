"""The ledger that the "nothing lost" tests rely on detects each kind of damage."""

import pytest

from tests.support.processes.ledger import Entry, Ledger, Stored
from tests.support.processes.worker_kills import BURST_MS, SPAN_MS, most_in_a_span


def _stored(ledger: Ledger, *numbers: int) -> list[Stored]:
    return [Stored(0, offset, ledger.value(Entry(1, 0, number), 20)) for offset, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("numbers", "problems"),
    [
        pytest.param((0, 1, 2), {}, id="all-there"),
        pytest.param((0, 2), {"lost": 1}, id="one-missing"),
        pytest.param((0, 1, 1, 2), {"duplicates": 1}, id="one-twice"),
        pytest.param((0, 2, 1), {"out_of_order": 1}, id="two-swapped"),
        pytest.param((0, 1, 2, 3), {}, id="one-more-than-acknowledged-is-no-loss"),
    ],
)
def test_judge(numbers: tuple[int, ...], problems: dict[str, int]) -> None:
    """Lost, duplicated and swapped records are each counted as their kind."""
    ledger = Ledger()
    verdict = ledger.judge([Entry(1, 0, number) for number in range(3)], _stored(ledger, *numbers))
    assert verdict.problems() == problems


def test_a_changed_byte_is_corruption_and_a_loss() -> None:
    """A record with one flipped bit counts as corrupt, and the record that was sent counts as lost."""
    ledger = Ledger()
    [record] = _stored(ledger, 0)
    damaged = Stored(0, 0, record.value[:40] + bytes([record.value[40] ^ 1]) + record.value[41:])
    assert ledger.judge([Entry(1, 0, 0)], [damaged]).problems() == {"lost": 1, "corrupt": 1}


def test_a_record_of_another_partition_is_foreign() -> None:
    """A record that is stored in a partition it was not sent to counts as foreign."""
    ledger = Ledger()
    [record] = _stored(ledger, 0)
    assert ledger.judge([Entry(1, 0, 0)], [Stored(3, 0, record.value)]).problems() == {"foreign": 1}


def test_a_record_of_another_run_is_corrupt() -> None:
    """A record of another run counts as corrupt."""
    [record] = _stored(Ledger(), 0)
    assert Ledger().judge([], [record]).problems() == {"corrupt": 1}


def test_the_worst_span_begins_after_the_first_window() -> None:
    """The most bytes of a span are found wherever it begins, without those of the first window, and without those at its end."""
    burst = [(at_ms, 1_000) for at_ms in range(0, BURST_MS, 1_000)]
    later = [(BURST_MS + 1_000, 10), (BURST_MS + 5_000, 20), (BURST_MS + 1_000 + SPAN_MS, 30)]
    assert most_in_a_span([*burst, *later]) == 20 + 30
    assert most_in_a_span(burst) == most_in_a_span([]) == 0
