"""Judges the file sets of one run in order. Small ones that follow each other are replayed together, and apart if anything differs."""

from collections.abc import Iterator, Sequence
from typing import Final

from metering_format.places import PACED, SHARED
from pipeline.file_set import FileSet
from pipeline.validation.file_set_verdict import FileSetVerdict, judge_file_set
from pipeline.validation.rules.gaps import Losses
from pipeline.validation.together import judge_together
from pipeline.validation.warm_up import Tail

FILE_SETS_MAX: Final = 64
DECISIONS_MAX: Final = 2**15
"""Highest number of decisions of file sets that are judged together."""
_TABLES: Final = {"samples", "usage", "comparisons", "dim_group", "dim_bound", "dim_client", "states"}
"""File sets with another table, such as `gaps`, are judged alone."""


def judge_run(file_sets: Sequence[FileSet], begin: int = 0) -> Iterator[tuple[FileSet, FileSetVerdict]]:
    """Yield each file set of a run with its verdict, in order.

    Args:
        file_sets: file sets of the run, in order: all of them, or those of a part after the earlier ones that can affect it.
        begin: position of the first one to judge.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    losses, tail = Losses.of(file_sets[:begin]), Tail()
    while begin < len(file_sets):
        end = _end_of_part(file_sets, begin, losses)
        own = file_sets[begin:end]
        verdicts = judge_together(own, _Before(file_sets, begin), losses) if len(own) > 1 else None
        if verdicts is not None:
            losses.next_seq = own[-1].manifest.last_seq + 1
            yield from zip(own, verdicts, strict=True)
        else:
            for number, file_set in enumerate(own, begin):
                losses.add(file_set)
                tail.following = file_sets[number + 1].manifest if number + 1 < len(file_sets) else None
                yield file_set, judge_file_set(file_set, _Before(file_sets, number), losses=losses, tail=tail)
        begin = end


class _Before(Sequence[FileSet]):
    """The first file sets of a run, without a copy: a run may have many thousands."""

    def __init__(self, file_sets: Sequence[FileSet], end: int) -> None:
        self._file_sets, self._end = file_sets, end

    def __len__(self) -> int:
        return self._end

    def __getitem__(self, at: int) -> FileSet:  # type: ignore[override]  # nothing slices it
        if not 0 <= at < self._end:
            raise IndexError(at)
        return self._file_sets[at]


def _end_of_part(file_sets: Sequence[FileSet], begin: int, losses: Losses) -> int:
    """Return the end of the longest part from `begin` on that may be judged together; a file set after a loss is judged alone."""
    decisions, end = 0, begin
    if file_sets[begin].manifest.first_seq > losses.next_seq:
        return begin + 1
    while end < len(file_sets) and end - begin < FILE_SETS_MAX:
        manifest = file_sets[end].manifest
        decisions += manifest.last_seq - manifest.first_seq + 1
        if decisions > DECISIONS_MAX or not (_is_plain(file_sets[end]) and (end == begin or _follows(file_sets[end], file_sets[end - 1]))):
            break
        end += 1
    return max(end, begin + 1)


def _is_plain(file_set: FileSet) -> bool:
    """Whether a file set has small files with decisions of this process alone, and none of them is lost."""
    manifest = file_set.manifest
    tables = {entry.table for entry in manifest.files}
    if (
        manifest.level != "packed"
        or manifest.dropped_decisions
        or SHARED in manifest.settings
        or PACED in manifest.settings
        or "samples" not in tables
    ):
        return False
    return tables <= _TABLES and all(file_set.is_small(entry) for entry in manifest.files if entry.table == "samples")


def _follows(file_set: FileSet, before: FileSet) -> bool:
    own, other = file_set.manifest, before.manifest
    return own.first_seq == other.last_seq + 1 and own.first_ts_ms >= other.first_ts_ms and own.settings == other.settings
