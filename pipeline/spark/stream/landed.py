"""The tables that a stream writes: verdicts of file sets, decisions and usage by second."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from metering_format.event_kinds import MUTATION
from metering_format.manifest import Manifest
from pipeline.errors import IncompleteError
from pipeline.spark.schemas import declared
from pipeline.spark.stream.source import StreamSource
from pipeline.spark.validation.partial_sums import Source
from pipeline.stream.judged import Judged
from pipeline.stream.output import StreamOutput
from pipeline.stream.result import Written
from pipeline.validation.divergence import Divergence
from pipeline.validation.file_set_verdict import FileSetVerdict
from pipeline.validation.warm_up import Work

VERDICTS: Final = (
    "run_id string, proxy_id string, stem string, first_seq long, last_seq long, "
    "decisions long, unjudged long, divergences long, first string"
)
DECISIONS: Final = "decisions_second"
USAGE: Final = "usage_second"
SECOND_MS: Final = 1_000
USAGE_SUMS: Final = ("requests", "produce_bytes", "fetch_bytes", "handler_ns")


def write_batch(
    spark: Any, source: StreamSource, works: Sequence[Work], output: StreamOutput, batch_id: int
) -> tuple[Written, list[Judged]]:
    """Judge file sets, and make their rows ready in the output; return the verdicts, too.

    Args:
        spark: the session.
        source: the metering directory.
        works: the file sets of the batch, each after the earlier ones that can affect it.
        output: where the rows go.
        batch_id: number of the batch.

    Raises:
        IncompleteError: a file is missing or has changed (where something diverges, also an earlier file), or rows differ from the sums in
            their manifests.
    """
    written = Written(len(works))
    if not works:
        return written, []
    verdicts, manifests = source.judge(works, every_byte=True), [work[-1] for work in works]
    blamed = {one.file_set: one for work, (_, verdict) in zip(works, verdicts, strict=True) if verdict.findings.total for one in work}
    source.check_undamaged(list(blamed.values()))
    written.divergences = sum(verdict.findings.total for _, verdict in verdicts)
    written.unjudged = sum(verdict.unjudged for _, verdict in verdicts)
    written.findings = [found for pair in verdicts for found in _divergences(*pair)]
    frames = {
        "verdicts": spark.createDataFrame([_verdict_row(*pair) for pair in verdicts], VERDICTS),
        DECISIONS: _decisions(spark, source, manifests),
        USAGE: _usage(spark, source, manifests),
    }
    held: dict[str, Any] = {}
    for name, frame in frames.items():
        if frame is not None:
            written.rows[name], held[name] = output.hold(name, frame, batch_id)
    _check_sums(manifests, held)
    return written, [Judged(*pair) for pair in verdicts]


def _verdict_row(manifest: Manifest, verdict: FileSetVerdict) -> tuple[Any, ...]:
    found = sorted(verdict.findings.first.values(), key=lambda finding: finding.seq)
    first = f"{found[0].kind} group {found[0].group_ref} seq {found[0].seq}: {found[0].what}" if found else None
    numbers = (manifest.first_seq, manifest.last_seq, verdict.decisions, verdict.unjudged, verdict.findings.total)
    return (manifest.run_id, manifest.proxy_id, manifest.file_set, *numbers, first)


def _divergences(manifest: Manifest, verdict: FileSetVerdict) -> list[Divergence]:
    key = (manifest.proxy_id, manifest.run_id)
    found = sorted(verdict.findings.first.values(), key=lambda finding: finding.seq)
    return [Divergence(key, verdict.names.get(finding.group_ref), finding) for finding in found]


def _paths(manifests: Sequence[Manifest], table: str) -> list[str]:
    return [entry.path for manifest in manifests for entry in manifest.files if entry.table == table]


def _read(spark: Any, source: StreamSource, manifests: Sequence[Manifest], table: str) -> Any:
    urls = [source.url(path) for path in _paths(manifests, table)]
    return spark.read.schema(declared(table)).parquet(*urls) if urls else None


def _decisions(spark: Any, source: StreamSource, manifests: Sequence[Manifest]) -> Any:
    samples = [Source(path, manifest.run_id, manifest.proxy_id) for manifest in manifests for path in _paths([manifest], "samples")]
    if not samples:
        return None
    groups = _read(spark, source, manifests, "dim_group")
    key = ["run_id", "proxy_id", "group_ref"]
    names = groups.select(*key, "quota_type", "scope", "node_id", "tag_user", "tag_client_id", "tag_ip").dropDuplicates(key)
    return source.sums(samples, SECOND_MS).withColumnRenamed("start_ms", "second_ms").join(names, key)


def _usage(spark: Any, source: StreamSource, manifests: Sequence[Manifest]) -> Any:
    usage, clients = _read(spark, source, manifests, "usage"), _read(spark, source, manifests, "dim_client")
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
