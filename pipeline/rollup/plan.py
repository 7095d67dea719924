"""What has to be built again: the hours to which files came, and their days."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.errors import IncompleteError
from pipeline.rollup.inputs import Hour, Input, hashes_by_hour
from pipeline.rollup.ledger import Ledger, hour_key


@dataclass(frozen=True, slots=True)
class Plan:
    """Hours and days of one run.

    Attributes:
        hours: open hours to build again.
        days: their days; each is built from all its hours.
        inputs: the file sets of those days.
        late: file sets that came to closed days: they become adjustment rows.
        lost: decisions that are in no file set, by the stem that follows them.
        broken: file sets that those of this plan name as the ones before them, and that are not there, a line each.
    """

    hours: tuple[Hour, ...]
    days: tuple[str, ...]
    inputs: tuple[Input, ...]
    late: tuple[Input, ...]
    lost: Mapping[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing came."""
        return not self.hours and not self.late


def plan_of(inputs: Iterable[Input], ledger: Ledger, settings: str, is_chosen: Callable[[Input], bool] = lambda _item: True) -> Plan:
    """Compare the file sets found with those that the tables were made from.

    An hour whose files were only removed (retention does that) keeps its rows.

    Args:
        settings: the hash of this run's settings.
        is_chosen: whether the hour of a file set is one that was asked for; its day is built from all its hours nevertheless.

    Raises:
        IncompleteError: files came to a day of which others are gone, so that it cannot be built whole again.
    """
    inputs = tuple(inputs)
    open_inputs = [item for item in inputs if not _is_closed(item.hour[0], ledger)]
    closed = [item for item in inputs if is_chosen(item) and _is_closed(item.hour[0], ledger)]
    late = [item for item in closed if not _known(item.hour, ledger).intersection(_names(item))]
    found = hashes_by_hour(item for item in open_inputs if is_chosen(item))
    hours = [hour for hour, hashes in found.items() if _is_to_build(hour, set(hashes), ledger, settings)]
    days = {date for date, _ in hours}
    _check_days(days, {name for item in open_inputs for name in _names(item)}, ledger)
    return Plan(tuple(sorted(hours)), tuple(sorted(days)), tuple(item for item in open_inputs if item.hour[0] in days), tuple(late))


def _is_to_build(hour: Hour, hashes: set[str], ledger: Ledger, settings: str) -> bool:
    """Files came; or all are there that it was made from, and it was made with other settings."""
    known = set(ledger.hours.get(hour_key(hour), ()))
    return not hashes <= known or (hashes == known and ledger.settings_of(hour) != settings)


def _is_closed(date: str, ledger: Ledger) -> bool:
    return ledger.closed_through is not None and date <= ledger.closed_through


def _known(hour: Hour, ledger: Ledger) -> set[str]:
    key = hour_key(hour)
    return {*ledger.hours.get(key, ()), *ledger.late.get(key, ())}


def _names(item: Input) -> tuple[str, ...]:
    """The hashes that a file set has, or had before somebody was forgotten in it: its facts are the same."""
    return (item.sha256, *item.manifest.replaces)


def _check_days(days: set[str], found: set[str], ledger: Ledger) -> None:
    for key, hashes in ledger.hours.items():
        date = key.split(" ")[0]
        gone = set(hashes) - found
        if date in days and gone:
            raise IncompleteError(
                f"{key}: files came to {date}, but {len(gone)} file sets that its tables were made from are gone;"
                f" restore them, or close the day first (--close-through {date})"
            )
