"""Applies the rules over whole runs in tasks of Spark, each to a share of the groups of a run.

The driver gets sums for each run and share, and the divergences that it prints. All divergences are a frame, which workers write.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.errors import IncompleteError
from pipeline.manifest import RunKey
from pipeline.replay.findings import Findings
from pipeline.spark.placement import packed, unpacked
from pipeline.spark.validation.judging import ChunkRow
from pipeline.validation.divergence import ORDER, SCHEMA, Divergence, finding_of_row
from pipeline.validation.verdict import Verdict, add_run
from pipeline.validation.whole_run import JudgedFileSet, RunVerdict, WholeRun, share_of

FOUND: Final = SCHEMA.append(pa.field("result", pa.binary()))
"""Columns of divergences, and the sums of a share in rows of their own."""
LATER: Final = 2**31 - 2
"""Position of rows with what other checks found, which come after all file sets; the next position is after these."""
ROWS_AT_ONCE: Final = 10_000

UseDivergences = Callable[[Any, int], None]
"""Gets the frame of all divergences, with the columns of `SCHEMA`, and its number of rows."""


class ShareResult(msgspec.Struct, frozen=True):
    """The result of a share of the groups of a run.

    Attributes:
        sums: without the divergences and names of groups.
        groups_with_divergences: number of these.
    """

    sums: RunVerdict
    groups_with_divergences: int


class Later(msgspec.Struct, frozen=True):
    """What another check found in a run, and names of the groups."""

    findings: Findings
    names: dict[int, str]


def rows_of_later(key: RunKey, later: Later, shares: int, position: int) -> Iterator[ChunkRow]:
    """Yield the rows of JUDGED of what another check found.

    Args:
        key: the run.
        later: what was found.
        shares: number of shares of the run's groups.
        position: LATER, or the position after it.
    """
    parts = [Later(Findings(), {}) for _ in range(shares)]
    parts[0].findings.counts.update(later.findings.counts)
    for ref, finding in later.findings.first.items():
        parts[share_of(ref, shares)].findings.first[ref] = finding
    for ref, name in later.names.items():
        parts[share_of(ref, shares)].names[ref] = name
    for share, part in enumerate(parts):
        if part.findings.first or part.findings.counts:
            yield ChunkRow(*key, share, position, packed(part))


def add_whole_runs(verdict: Verdict, judged: Any, file_sets: int, max_violations: int, use: UseDivergences) -> None:
    """Add the results of all runs to a verdict.

    Args:
        verdict: the verdict. It gets the first divergences, and the number of further ones.
        judged: a frame of JUDGED.
        file_sets: number of file sets that were to be judged.
        max_violations: number of divergences that the verdict gets.
        use: is called while Spark keeps the result.

    Raises:
        IncompleteError: a file set was not judged.
    """
    in_order = judged.repartition("proxy_id", "run_id", "share").sortWithinPartitions("proxy_id", "run_id", "share", "position")
    found = in_order.mapInArrow(_judge_runs, from_arrow_schema(FOUND)).persist()
    try:
        number = there = 0
        for row in found.where("result IS NOT NULL").select("proxy_id", "run_id", "result").collect():
            share = msgspec.json.decode(row["result"], type=ShareResult)
            add_run(verdict, (row["proxy_id"], row["run_id"]), share.sums)
            number, there = number + share.groups_with_divergences, there + share.sums.file_sets
        if there != file_sets:
            missing = f"{file_sets - there} of {file_sets} file sets were not judged, since none of their files arrived"
            raise IncompleteError(f"{missing}; run `sluice meter verify-manifests` on the source directory")
        divergences = found.where("result IS NULL").select(*SCHEMA.names)
        shown = divergences.orderBy(*ORDER).limit(max_violations).collect() if number and max_violations else []
        for row in shown:
            _add_first(verdict, row.asDict())
        verdict.further_groups = number - len(shown)
        use(divergences, number)
    finally:
        found.unpersist()


def _add_first(verdict: Verdict, row: dict[str, Any]) -> None:
    """Add the first divergence of a group, which is counted already."""
    key, finding = (row["proxy_id"], row["run_id"]), finding_of_row(row)
    verdict.findings[key].first[finding.group_ref] = finding
    if row["group"] is not None:
        verdict.names[key][finding.group_ref] = row["group"]


def _judge_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Judge the shares of runs in rows of JUDGED, which are in order; return rows of FOUND."""
    current: tuple[str, str, int] | None = None
    run = WholeRun()
    for proxy_id, run_id, share, position, data in _rows_of(batches):
        if current != (proxy_id, run_id, share):
            if current is not None:
                yield from _found(current[:2], run.result())
            current, run = (proxy_id, run_id, share), WholeRun()
        if position >= LATER:
            later = unpacked(data, Later)
            run.add_later(later.findings, later.names)
        else:
            for one in unpacked(data, list[JudgedFileSet]):
                run.add(one)
    if current is not None:
        yield from _found(current[:2], run.result())


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[ChunkRow]:
    for batch in batches:
        for row in zip(*(batch.column(name).to_pylist() for name in ChunkRow._fields), strict=True):
            yield ChunkRow(*row)


def _found(key: RunKey, run: RunVerdict) -> Iterator[pa.RecordBatch]:
    """Yield the sums of a share of a run, and its divergences."""
    first = run.findings.first
    sums = replace(run, findings=Findings(counts=run.findings.counts), names={})
    yield _batch([{"proxy_id": key[0], "run_id": key[1], "result": msgspec.json.encode(ShareResult(sums, len(first)))}])
    refs = list(first)
    for begin in range(0, len(refs), ROWS_AT_ONCE):
        yield _batch([Divergence(key, run.names.get(ref), first[ref]).as_row() for ref in refs[begin : begin + ROWS_AT_ONCE]])


def _batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=FOUND)
