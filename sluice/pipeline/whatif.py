"""`whatif`: simulates other quotas on metered decisions, on the caller's session."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
from msgspec.structs import astuple
from pyspark.sql import DataFrame, SparkSession

from pipeline.quotas.file import read_quota_file
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.hadoop_files import path_at
from pipeline.spark.known_frame import known_frame
from pipeline.spark.tasks import run_on_spark
from pipeline.whatif.comparison import changes_of
from pipeline.whatif.pacing import Pacing
from pipeline.whatif.work import JOB, outcomes_of, plan_work

_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()
_CHANGES: Final = pa.schema(
    [
        *((name, _TEXT) for name in ("scenario", "group", "quota_type", "proxy_id", "node")),
        *((name, _WHOLE) for name in ("decisions", "units")),
        *((name, _REAL) for name in ("bound_today", "bound")),
        *((name, _TEXT) for name in ("pacing_today", "pacing")),
        *((name, _WHOLE) for name in ("throttled_today", "throttled", "wait_ms_today", "wait_ms")),
        *((name, _WHOLE) for name in ("wait_p50_ms", "wait_p95_ms", "wait_max_ms")),
        ("sent_percent", _REAL),
        ("note", _TEXT),
    ]
)


def whatif(
    spark: SparkSession,
    source: str | Path,
    quotas: Sequence[str | Path],
    mode: Literal["open", "regroup", "closed"] = "open",
    *,
    pacing: Literal["window", "paced"] | None = None,
    paced_burst_ms: int | None = None,
) -> DataFrame:
    """Simulate quota files on the decisions of a metering directory, as `sluice meter whatif` does.

    Args:
        spark: the caller's session.
        source: the metering directory: a path that the workers see, or a URL of an object store (`s3`, `gs`, `abfs`) or of Hadoop.
        quotas: quota files: paths or such URLs; the text is the column `scenario`.
        mode: open: recorded times and groups; regroup: recorded times, groups of the file; closed: times shifted by the new waits.
        pacing: enforcement of produced and fetched bytes; None: as recorded.
        paced_burst_ms: burst of paced groups in ms; None: as recorded, or 1,000.

    Returns:
        One row for each quota file and group, with decisions, throttles and waits (ms) today and under the file.

    Raises:
        BadInputError, IncompleteError: a quota file or the directory cannot be used.
    """
    files = [read_quota_file(path_at(spark, str(file))) for file in quotas]
    work = plan_work(path_at(spark, str(source)), files, mode, pacing=Pacing(pacing, paced_burst_ms))
    with reported_in_one_line():
        done = run_on_spark(spark, JOB, work)
    found = zip(map(str, quotas), outcomes_of(done, len(files)), strict=True)
    changes = [change for name, outcomes in found for change in changes_of(name, outcomes, mode)]
    return known_frame(spark, map(astuple, changes), _CHANGES)
