"""Connection numbers are consecutive in a single process and interleaved between workers."""

import pytest

from proxy.enforcement.mode import INT32_MAX, Enforcement
from proxy.session.settings import SessionSettings
from proxy.telemetry.client_usage import UsageTable
from proxy.telemetry.counters import Counters


def settings_of(first: int = 1, step: int = 1) -> SessionSettings:
    settings = SessionSettings(Enforcement(), UsageTable(), Counters())
    settings.first_number, settings.number_step = first, step
    return settings


def test_connections_are_counted_from_one() -> None:
    """A single process numbers its connections 1, 2, 3 and so on."""
    settings = settings_of()
    assert [settings.next_number() for _ in range(4)] == [1, 2, 3, 4]


def test_workers_give_out_different_numbers() -> None:
    """Worker i of N numbers its connections i, i + N, i + 2 N and so on."""
    numbers = [[settings.next_number() for _ in range(3)] for settings in (settings_of(first, 3) for first in (1, 2, 3))]
    assert numbers == [[1, 4, 7], [2, 5, 8], [3, 6, 9]]


@pytest.mark.parametrize(("first", "step"), [(1, 1), (2, 3)])
def test_numbers_begin_anew_behind_the_last_one(first: int, step: int) -> None:
    """After the largest int32 the numbers of a worker start again at its first one, never at 0."""
    settings = settings_of(first, step)
    settings.last_number = INT32_MAX - (INT32_MAX - first) % step
    assert [settings.next_number() for _ in range(2)] == [first, first + step]
