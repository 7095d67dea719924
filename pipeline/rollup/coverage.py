"""Coverage: the share of rows and decisions that is in the data, by hour, from the manifests' promised and lost numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.rollup.inputs import Hour, Input


@dataclass(slots=True)
class Share:
    """Rows or decisions: what there should be, and what there is."""

    expected: int = 0
    present: int = 0

    @property
    def percent(self) -> float:
        """Never above 100; an hour of which nothing is expected is whole."""
        return min(100.0, 100.0 * self.present / self.expected) if self.expected else 100.0


@dataclass(slots=True)
class Coverage:
    """Of one hour or day; `percent` is the lower of the two, since a lost file set takes its usage along."""

    usage: Share
    decisions: Share

    @property
    def percent(self) -> float:
        """How much is there."""
        return min(self.usage.percent, self.decisions.percent)

    @property
    def numbers(self) -> list[int]:
        """Expected and present: of usage rows, of decisions."""
        return [self.usage.expected, self.usage.present, self.decisions.expected, self.decisions.present]


def lost_between(inputs: Iterable[Input], removed: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Return, by file set, how many decisions just before it are in no file set: one was deleted by hand, or is late.

    Args:
        inputs: of all days, each run in order.
        removed: the last decision of each run that retention removed: what ends there is not lost.
    """
    lost: dict[str, int] = {}
    next_seq = {run: last_seq + 1 for run, last_seq in removed.items()}
    for item in inputs:
        run = (item.manifest.proxy_id, item.manifest.run_id)
        lost[item.manifest.file_set] = max(item.manifest.first_seq - next_seq.get(run, 0), 0)
        next_seq[run] = item.manifest.last_seq + 1
    return lost


def coverage_by_hour(
    inputs: Iterable[Input], usage_aside: Mapping[str, int], decisions_aside: Mapping[str, int], lost: Mapping[str, int]
) -> dict[Hour, Coverage]:
    """Return the coverage of each hour.

    Args:
        usage_aside, decisions_aside: usage rows, and decisions, in the quarantine, by file set.
        lost: what `lost_between` returns; it counts in the hour of the file set that follows.
    """
    hours: dict[Hour, Coverage] = {}
    for item in inputs:
        manifest = item.manifest
        here = hours.setdefault(item.hour, Coverage(Share(), Share()))
        rows = item.rows("usage")
        here.usage.expected += rows + manifest.dropped_usage_rows
        here.usage.present += rows - usage_aside.get(manifest.file_set, 0)
        taken = manifest.last_seq - manifest.first_seq + 1
        here.decisions.expected += taken + lost.get(manifest.file_set, 0)
        here.decisions.present += taken - manifest.dropped_decisions - decisions_aside.get(manifest.file_set, 0)
    return hours


def complete(
    account: Sequence[int], late: Iterable[Input], usage_aside: Mapping[str, int], decisions_aside: Mapping[str, int], found: int
) -> Coverage:
    """Return the coverage of a closed day with what came late.

    Args:
        account: the four numbers of the day until now, as `numbers` returns them.
        late: file sets that came to it.
        found: how many decisions are no longer lost.
    """
    usage, decisions = Share(*account[:2]), Share(account[2] - found, account[3])
    for coverage in coverage_by_hour(late, usage_aside, decisions_aside, {}).values():
        for ours, its in ((usage, coverage.usage), (decisions, coverage.decisions)):
            ours.expected += its.expected
            ours.present += its.present
    return Coverage(usage, decisions)


def coverage_by_day(hours: Mapping[Hour, Coverage]) -> dict[str, Coverage]:
    """Return the coverage of each day."""
    days: dict[str, Coverage] = {}
    for (date, _), coverage in hours.items():
        day = days.setdefault(date, Coverage(Share(), Share()))
        for ours, its in ((day.usage, coverage.usage), (day.decisions, coverage.decisions)):
            ours.expected += its.expected
            ours.present += its.present
    return days
