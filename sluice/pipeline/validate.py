"""`validate`: recomputes every metered decision, on the caller's session."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.known_frame import known_frame
from pipeline.spark.validation.validate import Wanted, local_runs, validate_remote, validate_runs
from pipeline.validation.divergence import ORDER, SCHEMA
from pipeline.validation.verdict import Verdict
from sluice.object_store import is_url

_SHOWN_MAX: Final = 50
_FEW: Final = 10_000
"""Number of divergences up to which the driver keeps their frame. Spark keeps that of more."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The verdict on a metering directory.

    Attributes:
        holds: no decision diverges from Kafka's arithmetic.
        is_complete: no decision was lost, so the verdict is about all of them.
        verdict: the content of `verdict.json`.
        divergences: the first divergence of each group: proxy_id, run_id, group, kind, group_ref, seq, ts_ms (wall clock, in ms), what,
            expected, recorded, evidence. If there are more than 10,000, Spark keeps the frame until `divergences.unpersist()`. From a URL,
            with Spark Connect, it has the first 10,000.
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
    kept: list[DataFrame] = []

    def keep(divergences: DataFrame, number: int) -> None:
        is_of_connect = hasattr(spark, "cloneSession")
        if number > _FEW and not (is_of_connect and is_url(str(source))):  # there the session of the frame ends with the validation
            divergences.persist().count()
            kept.append(divergences)
            return
        rows = divergences.orderBy(*ORDER).limit(_FEW).collect() if number else []
        kept.append(known_frame(spark, rows, SCHEMA))

    with reported_in_one_line():
        verdict = _verdict(spark, str(source), Wanted(_SHOWN_MAX, keep, every_byte=every_byte))
    return Validation(verdict.holds, not verdict.incomplete, verdict.as_dict(_SHOWN_MAX), kept[0])


def _verdict(spark: SparkSession, place: str, wanted: Wanted) -> Verdict:
    if is_url(place):
        return validate_remote(spark, place, wanted)
    return validate_runs(spark, local_runs(place, every_byte=wanted.every_byte), wanted)
