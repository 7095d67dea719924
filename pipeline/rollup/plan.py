"""Plans a roll-up: the hours that got new files, and their days."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pipeline.errors import IncompleteError
from pipeline.rollup.inputs import Hour, Input, hashes_by_hour
from pipeline.rollup.ledger import Ledger, hour_key
from pipeline.text import counted


@dataclass(frozen=True, slots=True)
class Plan:
    """Hours and days of one run.

    Attributes:
        hours: open hours to build again: files came to them, or what was missing before them.
        days: their days; each is built from all its hours.
        inputs: the file sets of those days.
        late: file sets that came to closed days: they become adjustment rows.
        lost: decisions that are in no file set, by the file set that follows them.
        lost_now: the same by hour.
        broken: file sets that those of this plan name as the ones before them, and that are not there, a line each.
    """

    hours: tuple[Hour, ...]
    days: tuple[str, ...]
    inputs: tuple[Input, ...]
    late: tuple[Input, ...]
    lost: Mapping[str, int] = field(default_factory=dict)
    lost_now: Mapping[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing came."""
        return not self.hours and not self.late


def plan_of(
    inputs: Iterable[Input],
    ledger: Ledger,
    settings: str,
    is_chosen: Callable[[Input], bool] = lambda _item: True,
    lost: Mapping[str, int] = MappingProxyType({}),
    closing: str | None = None,
) -> Plan:
    """Compare the file sets found with those that the tables were made from.

    An hour whose files were only removed (retention does that) keeps its rows.

    Args:
        settings: the hash of this run's settings.
        is_chosen: whether the hour of a file set is one that was asked for; its day is built from all its hours nevertheless.
        lost: decisions that are in no file set, by the file set that follows them.
        closing: the last day that is to be closed: one of which file sets are gone is closed as it stands, and what came to it is late.

    Raises:
        IncompleteError: files came to a day of which others are gone, so that it cannot be built whole again.
    """
    inputs = tuple(inputs)
    names = {name for item in inputs for name in _names(item)}
    as_they_stand = {date for date in _gone(names, ledger) if date <= (closing or "")}
    open_inputs = [item for item in inputs if not _is_closed(item.hour[0], ledger) and item.hour[0] not in as_they_stand]
    closed = [item for item in inputs if is_chosen(item) and (_is_closed(item.hour[0], ledger) or item.hour[0] in as_they_stand)]
    known = ledger.known
    late = [item for item in closed if not known.intersection(_names(item))]
    found = hashes_by_hour(item for item in open_inputs if is_chosen(item))
    lost_now = lost_by_hour(inputs, lost)
    came = {hour for hour in found if lost_now.get(hour_key(hour), 0) < ledger.lost.get(hour_key(hour), 0)}
    hours = [hour for hour, hashes in found.items() if hour in came or _is_to_build(hour, set(hashes), ledger, settings)]
    days = {date for date, _ in hours}
    _check_days(days, _gone(names, ledger))
    chosen = tuple(item for item in open_inputs if item.hour[0] in days)
    return Plan(tuple(sorted(hours)), tuple(sorted(days)), chosen, tuple(late), lost, lost_now=lost_now)


def _is_to_build(hour: Hour, hashes: set[str], ledger: Ledger, settings: str) -> bool:
    """Files came; or all are there that it was made from, and it was made with other settings."""
    known = set(ledger.hours.get(hour_key(hour), ()))
    return not hashes <= known or (hashes == known and ledger.settings_of(hour) != settings)


def lost_by_hour(inputs: Iterable[Input], lost: Mapping[str, int]) -> dict[str, int]:
    """Return how many decisions are lost before the file sets of each hour, where any are."""
    hours: dict[str, int] = {}
    for item in inputs:
        if number := lost.get(item.manifest.file_set, 0):
            key = hour_key(item.hour)
            hours[key] = hours.get(key, 0) + number
    return hours


def _is_closed(date: str, ledger: Ledger) -> bool:
    return ledger.closed_through is not None and date <= ledger.closed_through


def _names(item: Input) -> tuple[str, ...]:
    """The hashes that a file set has, or had before a user was forgotten in it: its facts are the same."""
    return (item.sha256, *item.manifest.replaces)


def _gone(names: set[str], ledger: Ledger) -> dict[str, int]:
    """By day: how many of the file sets that its tables were made from are not among these."""
    days: dict[str, int] = {}
    for key, hashes in ledger.hours.items():
        if gone := len(set(hashes) - names):
            date = key.split(" ")[0]
            days[date] = days.get(date, 0) + gone
    return days


def _check_days(days: set[str], gone: Mapping[str, int]) -> None:
    for date in sorted(days.intersection(gone)):
        raise IncompleteError(
            f"{date}: files came to it, but of those that its tables were made from {counted(gone[date], 'file set')} cannot be found;"
            f" restore them, or close the day as it stands (--close-through {date})"
        )
