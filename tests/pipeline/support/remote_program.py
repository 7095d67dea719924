"""A program that knows Spark only by Spark Connect: `python -m ... METERING NOTEBOOK` prints what it found as one line of JSON.

The functions of PySpark serve one kind of session in a process, so this cannot run in the process of the tests.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.pipeline.support import notebooks
from tests.pipeline.support.spark_jvm import FOR_SMALL_JOBS, quick_jvm


def as_json(shown: Sequence[Any]) -> list[Any]:
    """Return values that cells show, with tables as lists of rows."""
    tables = [one.to_dict("records") if hasattr(one, "to_dict") else one for one in shown]
    made: list[Any] = json.loads(json.dumps(tables, default=str))
    return made


def _session(mount: Path) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        **FOR_SMALL_JOBS,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": quick_jvm("-XX:ReservedCodeCacheSize=256m"),
        "spark.hadoop.fs.viewfs.mounttable.house.link./metering": mount.as_uri(),
    }
    return SparkSession.builder.remote("local[2]").config(map=settings).getOrCreate()


def _error_of_a_task(validate: Callable[..., Any], spark: Any, source: Path) -> str:
    """Return the error for a file that is damaged in its middle, where only a task finds it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(source, Path(folder, "copy")))
        file = min((copy / "samples").rglob("*.parquet"))
        content = file.read_bytes()
        file.write_bytes(content[:300] + b"x" * 100 + content[400:])
        return _error_of(validate, spark, copy)


def _error_of(validate: Callable[..., Any], spark: Any, url: Path | str) -> str:
    try:
        validate(spark, url)
    except Exception as error:  # noqa: BLE001 - the test says which it has to be
        return f"{type(error).__name__}: {error}"
    return ""


def main(source: Path, notebook: Path) -> None:
    """Run the notebook and the functions."""
    spark = _session(source.parent)
    settings = dict(spark.conf.getAll)
    from sluice.pipeline import validate

    names: dict[str, Any] = {}
    found = {
        "is_remote": not hasattr(spark, "sparkContext"),
        "settings_before": settings,
        "shown": as_json(notebooks.run(notebook, names)),
        "verdict": names["verdict"].verdict,
        "verdict_of_url": validate(spark, f"viewfs://house/metering/{source.name}").verdict,
        "verdict_of_violated": validate(spark, "viewfs://house/metering/violated").verdict,
        "error_of_damaged": _error_of(validate, spark, "viewfs://house/metering/damaged"),
        "changes": [list(row) for row in names["changes"].collect()],
        "quotas": names["quotas"].read_text(),
        "error": _error_of_a_task(validate, spark, source),
        "settings_after": dict(spark.conf.getAll),
        "rows_afterwards": spark.range(3).count(),
    }
    shutil.rmtree(names["quotas"].parent)
    print(json.dumps(found), flush=True)
    spark.stop()
    os._exit(0)  # the server's gateway ends with this process


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
