"""`validate`: recomputes every metered decision, on the caller's session."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.file_sets import checked_runs
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.known_frame import known_frame
from pipeline.spark.validation.validate import validate_remote, validate_runs
from pipeline.validation.verdict import Verdict
from sluice.object_store import is_url

_SHOWN_MAX: Final = 50
_DIVERGENCES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("proxy_id", "run_id", "group", "kind")),
        *((name, pa.int64()) for name in ("group_ref", "seq", "ts_ms")),
        *((name, pa.string()) for name in ("what", "expected", "recorded")),
        ("evidence", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class Validation:
    """The verdict on a metering directory.

    Attributes:
        holds: no decision diverges from Kafka's arithmetic.
        is_complete: no decision was lost, so the verdict is about all of them.
        verdict: the content of `verdict.json`.
        divergences: the first divergence of each group: proxy_id, run_id, group, kind, group_ref, seq, ts_ms (wall clock, in ms), what,
            expected, recorded, evidence.
    """

    holds: bool
    is_complete: bool
    verdict: Mapping[str, Any]
    divergences: DataFrame


def validate(spark: SparkSession, source: str | Path, *, every_byte: bool = False) -> Validation:
    """Recompute every decision of a metering directory, as `sluice meter validate --engine spark` does.

    Args:
        spark: the caller's session.
        source: the metering directory: a path that the workers see, or a URL of a file system that Hadoop supports.
        every_byte: first compare the SHA-256 of every file with its manifest.

    Raises:
        BadInputError, IncompleteError: the directory cannot be judged.
    """
    with reported_in_one_line():
        verdict = _verdict(spark, str(source), every_byte=every_byte)
    rows = [one.as_row() for one in verdict.divergences(verdict.violations)]
    divergences = known_frame(spark, ([row[name] for name in _DIVERGENCES.names] for row in rows), _DIVERGENCES)
    return Validation(verdict.holds, not verdict.incomplete, verdict.as_dict(_SHOWN_MAX), divergences)


def _verdict(spark: SparkSession, place: str, *, every_byte: bool) -> Verdict:
    if is_url(place):
        return validate_remote(spark, place, every_byte=every_byte)
    directory = Path(place.removeprefix("file://"))
    return validate_runs(spark, directory, checked_runs(directory, every_byte=every_byte))
