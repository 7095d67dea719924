"""Coverage by hour: the share of expected rows and decisions that is present. Manifests give the expected and the lost numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.rollup.inputs import Hour, Input


@dataclass(slots=True)
class Share:
    """Expected and present number of rows, or of decisions."""

    expected: int = 0
    present: int = 0

    @property
    def percent(self) -> float:
        """Percentage present, at most 100; it is 100 when nothing is expected."""
        return min(100.0, 100.0 * self.present / self.expected) if self.expected else 100.0


@dataclass(slots=True)
class Coverage:
    """Coverage of one hour or day. `percent` is the lower of both shares, since a lost file set also loses its usage rows."""

    usage: Share
    decisions: Share

    @property
    def percent(self) -> float:
        """Percentage present."""
        return min(self.usage.percent, self.decisions.percent)

    @property
    def numbers(self) -> list[int]:
        """Return four numbers: usage rows expected and present, decisions expected and present."""
        return [self.usage.expected, self.usage.present, self.decisions.expected, self.decisions.present]


def lost_between(inputs: Iterable[Input], removed: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Return, by file set, the number of decisions directly before it that no file set contains.

    The missing file set was deleted by hand, or arrives late.

    Args:
        inputs: the file sets of all days, each run in order.
        removed: sequence number of the last decision that retention removed, by run. Decisions up to it are not lost.
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
        inputs: the file sets of these hours.
        usage_aside, decisions_aside: number of quarantined usage rows and decisions, by file set.
        lost: the result of `lost_between`. A loss counts in the hour of the file set that follows it.
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
    """Return the coverage of a closed day, including late file sets.

    Args:
        account: the day's four numbers before the late file sets, as `numbers` returns them.
        late: the late file sets of the day.
        usage_aside, decisions_aside: number of quarantined usage rows and decisions, by file set.
        found: number of decisions that counted as lost and are now present.
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
