"""Plans a roll-up: the hours with new files, and the days of these hours."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pipeline.errors import IncompleteError
from pipeline.rollup.inputs import Hour, Input, hashes_by_hour
from pipeline.rollup.ledger import Ledger, hour_key
from pipeline.text import counted


@dataclass(frozen=True, slots=True)
class Plan:
    """The hours and days that one run builds.

    Attributes:
        hours: open hours to build again: file sets or previously lost decisions arrived, or the settings changed.
        days: the days of `hours`; each is built from all its hours.
        inputs: the file sets of `days`.
        late: new file sets of closed days; they become adjustment rows.
        lost: number of decisions that no file set contains, by the file set that follows them.
        lost_now: the same number, by hour.
        broken: descriptions of missing file sets that the file sets of this plan name as their predecessors.
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
        """Whether there is nothing to build."""
        return not self.hours and not self.late


def plan_of(
    inputs: Iterable[Input],
    ledger: Ledger,
    settings: str,
    is_chosen: Callable[[Input], bool] = lambda _item: True,
    lost: Mapping[str, int] = MappingProxyType({}),
    closing: str | None = None,
) -> Plan:
    """Compare the file sets found with those that the tables were built from.

    An hour keeps its rows when its files were only removed, as retention does.

    Args:
        inputs: all file sets found.
        ledger: the ledger of the tables.
        settings: the hash of this run's settings.
        is_chosen: whether the hour of a file set was requested. A day is built from all its hours in any case.
        lost: number of decisions that no file set contains, by the file set that follows them.
        closing: the last day to close, or None. A day with removed file sets is closed as published, and its new file sets are late.

    Raises:
        IncompleteError: a day has new file sets and removed ones, so it cannot be rebuilt.
    """
    inputs = tuple(inputs)
    names = {name for item in inputs for name in _names(item)}
    as_they_stand = {date for date in _gone(names, ledger) if date <= (closing or "")}
    open_inputs = [item for item in inputs if not _is_closed(item.hour[0], ledger) and item.hour[0] not in as_they_stand]
    closed = [item for item in inputs if is_chosen(item) and (_is_closed(item.hour[0], ledger) or item.hour[0] in as_they_stand)]
    known = ledger.known
    late = [item for item in closed if not _is_counted(item, known)]
    found = hashes_by_hour(item for item in open_inputs if is_chosen(item))
    lost_now = lost_by_hour(inputs, lost)
    came = {hour for hour in found if lost_now.get(hour_key(hour), 0) < ledger.lost.get(hour_key(hour), 0)}
    hours = [hour for hour, hashes in found.items() if hour in came or _is_to_build(hour, set(hashes), ledger, settings)]
    days = {date for date, _ in hours}
    _check_days(days, _gone(names, ledger))
    chosen = tuple(item for item in open_inputs if item.hour[0] in days)
    return Plan(tuple(sorted(hours)), tuple(sorted(days)), chosen, tuple(late), lost, lost_now=lost_now)


def _is_to_build(hour: Hour, hashes: set[str], ledger: Ledger, settings: str) -> bool:
    """Whether new files arrived, or the hour has all its files and was built with other settings."""
    known = set(ledger.hours.get(hour_key(hour), ()))
    return not hashes <= known or (hashes == known and ledger.settings_of(hour) != settings)


def lost_by_hour(inputs: Iterable[Input], lost: Mapping[str, int]) -> dict[str, int]:
    """Return the number of decisions that are lost before the file sets of each hour, when above 0."""
    hours: dict[str, int] = {}
    for item in inputs:
        if number := lost.get(item.manifest.file_set, 0):
            key = hour_key(item.hour)
            hours[key] = hours.get(key, 0) + number
    return hours


def _is_closed(date: str, ledger: Ledger) -> bool:
    return ledger.closed_through is not None and date <= ledger.closed_through


def _versions(item: Input) -> tuple[str, ...]:
    """Return the hash of a file set, and its hash before the names of a user were erased. The measurements are the same."""
    return (item.sha256, *item.manifest.replaces)


def _names(item: Input) -> tuple[str, ...]:
    """Return the same, and the hashes of the file sets that were merged to this one."""
    return (*_versions(item), *(sha256 for part in item.manifest.merged for sha256 in part.manifests))


def _is_counted(item: Input, known: Container[str]) -> bool:
    """Whether the tables have the measurements of a file set.

    Raises:
        IncompleteError: they have some of the file sets that were merged to this one, and not the others.
    """
    if any(sha256 in known for sha256 in _versions(item)):
        return True
    counted_parts = [any(sha256 in known for sha256 in part.manifests) for part in item.manifest.merged]
    if any(counted_parts) and not all(counted_parts):
        raise IncompleteError(
            f"{item.manifest.file_set}: `sluice meter compact` merged file sets that a closed day has with later ones that it lacks;"
            " restore the file sets from before, and run the roll-up before the next compaction"
        )
    return bool(counted_parts) and all(counted_parts)


def _gone(names: set[str], ledger: Ledger) -> dict[str, int]:
    """Return, by day, the number of file sets that the tables were built from and that are not in `names`."""
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
