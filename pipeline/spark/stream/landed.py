"""The tables that a stream writes: verdicts of file sets, decisions and usage by second."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from metering_format.event_kinds import MUTATION
from metering_format.manifest import Manifest
from pipeline.errors import IncompleteError
from pipeline.file_set import runs_of
from pipeline.manifest import check_undamaged, find_manifests, problems_of
from pipeline.parquet.checks import check_columns
from pipeline.spark.schemas import declared
from pipeline.spark.validation.partial_sums import Source, sums_of
from pipeline.spark.validation.validate import judge_some
from pipeline.spark.written import url_of
from pipeline.stream.judged import Judged
from pipeline.stream.output import StreamOutput
from pipeline.stream.result import Written
from pipeline.validation.divergence import Divergence
from pipeline.validation.file_set_verdict import FileSetVerdict

VERDICTS: Final = (
    "run_id string, proxy_id string, stem string, first_seq long, last_seq long, "
    "decisions long, unjudged long, divergences long, first string"
)
DECISIONS: Final = "decisions_second"
USAGE: Final = "usage_second"
SECOND_MS: Final = 1_000
USAGE_SUMS: Final = ("requests", "produce_bytes", "fetch_bytes", "handler_ns")


def write_batch(
    spark: Any, directory: Path, manifests: Sequence[Manifest], output: StreamOutput, batch_id: int
) -> tuple[Written, list[Judged]]:
    """Judge file sets, and make their rows ready in the output; return the verdicts, too.

    Raises:
        IncompleteError: a file is missing or has changed (where something diverges, also an earlier file), or rows differ from the sums in
            their manifests.
    """
    written = Written(len(manifests))
    if not manifests:
        return written, []
    problems = [problem for manifest in manifests for problem in problems_of(directory, manifest)]
    if problems:
        raise IncompleteError(problems[0])
    check_columns(directory, manifests)
    verdicts = _verdicts(spark, directory, manifests)
    written.divergences = sum(verdict.findings.total for _, verdict in verdicts)
    written.unjudged = sum(verdict.unjudged for _, verdict in verdicts)
    written.findings = [found for pair in verdicts for found in _divergences(*pair)]
    frames = {
        "verdicts": spark.createDataFrame([_verdict_row(*pair) for pair in verdicts], VERDICTS),
        DECISIONS: _decisions(spark, directory, manifests),
        USAGE: _usage(spark, directory, manifests),
    }
    held: dict[str, Any] = {}
    for name, frame in frames.items():
        if frame is not None:
            written.rows[name], held[name] = output.hold(name, frame, batch_id)
    _check_sums(manifests, held)
    return written, [Judged(*pair) for pair in verdicts]


def _verdicts(spark: Any, directory: Path, manifests: Sequence[Manifest]) -> list[tuple[Manifest, FileSetVerdict]]:
    runs = runs_of(directory, find_manifests(directory))
    judged = judge_some(spark, directory, runs, {manifest.file_set for manifest in manifests})
    blamed = {one.file_set: one for work, verdict in judged if verdict.findings.total for one in work}
    check_undamaged(directory, list(blamed.values()))
    return [(work[-1], verdict) for work, verdict in judged]


def _verdict_row(manifest: Manifest, verdict: FileSetVerdict) -> tuple[Any, ...]:
    found = sorted(verdict.findings.first.values(), key=lambda finding: finding.seq)
    first = f"{found[0].kind} group {found[0].group_ref} seq {found[0].seq}: {found[0].what}" if found else None
    numbers = (manifest.first_seq, manifest.last_seq, verdict.decisions, verdict.unjudged, verdict.findings.total)
    return (manifest.run_id, manifest.proxy_id, manifest.file_set, *numbers, first)


def _divergences(manifest: Manifest, verdict: FileSetVerdict) -> list[Divergence]:
    key = (manifest.proxy_id, manifest.run_id)
    found = sorted(verdict.findings.first.values(), key=lambda finding: finding.seq)
    return [Divergence(key, verdict.names.get(finding.group_ref), finding) for finding in found]


def _paths(directory: Path, manifests: Sequence[Manifest], table: str) -> list[str]:
    return [url_of(directory / entry.path) for manifest in manifests for entry in manifest.files if entry.table == table]


def _read(spark: Any, directory: Path, manifests: Sequence[Manifest], table: str) -> Any:
    paths = _paths(directory, manifests, table)
    return spark.read.schema(declared(table)).parquet(*paths) if paths else None


def _decisions(spark: Any, directory: Path, manifests: Sequence[Manifest]) -> Any:
    samples = [
        Source(str(directory / entry.path), manifest.run_id, manifest.proxy_id)
        for manifest in manifests
        for entry in manifest.files
        if entry.table == "samples"
    ]
    if not samples:
        return None
    groups = _read(spark, directory, manifests, "dim_group")
    key = ["run_id", "proxy_id", "group_ref"]
    names = groups.select(*key, "quota_type", "scope", "node_id", "tag_user", "tag_client_id", "tag_ip").dropDuplicates(key)
    return sums_of(spark, samples, SECOND_MS).withColumnRenamed("start_ms", "second_ms").join(names, key)


def _usage(spark: Any, directory: Path, manifests: Sequence[Manifest]) -> Any:
    usage, clients = _read(spark, directory, manifests, "usage"), _read(spark, directory, manifests, "dim_client")
    if usage is None or clients is None:
        return None
    key = ["run_id", "client_ref"]
    return usage.join(clients.select(*key, "principal_type", "principal", "client_id").dropDuplicates(key), key, "left")


def _check_sums(manifests: Sequence[Manifest], held: Mapping[str, Any]) -> None:
    """Compare the rows of each table with the manifests."""
    decisions: dict[str, int] = {}
    for manifest in manifests:
        for quota_type, count in manifest.counts.items():
            if quota_type != MUTATION:
                decisions[quota_type] = decisions.get(quota_type, 0) + count.decisions
    if DECISIONS in held:
        rows = held[DECISIONS].groupBy("quota_type").sum("decisions").collect()
        found = {row[0]: int(row[1]) for row in rows if row[0] != MUTATION}
        _compare("decisions", {name: number for name, number in decisions.items() if number}, found)
    if USAGE in held:
        row = held[USAGE].groupBy().sum(*USAGE_SUMS).collect()[0]
        promised = {name: sum(getattr(manifest.usage, name) for manifest in manifests) for name in USAGE_SUMS}
        _compare("usage", promised, {name: int(row[number] or 0) for number, name in enumerate(USAGE_SUMS)})


def _compare(what: str, promised: dict[str, int], found: dict[str, int]) -> None:
    if promised != found:
        raise IncompleteError(f"{what}: the manifests list {promised}, and {found} would be written; the batch is discarded")
