"""Two roll-ups that read the same `runs` and publish, with Spark 4.0.1: `python two_publishers.py JARS FOLDER iceberg|delta FIRST`.

FIRST is `spark` or `local`: the engine whose store publishes first. Spark's store publishes after it. Prints who has published.
"""

import contextlib
import sys
from pathlib import Path

import pyarrow as pa

from pipeline.builds.publishing import RunsStore
from pipeline.builds.runs import SCHEMA
from pipeline.errors import IncompleteError
from pipeline.spark.builds.formats import Delta, Format, Iceberg
from pipeline.spark.builds.store import SparkStore
from tests.pipeline.support.build_places import DeltaPlace, IcebergPlace
from tests.support.platform.spark_statements import session


def main(jars: str, folder: str, tables: str, engine: str) -> None:
    spark = session(jars, folder, tables)
    kind: Format = Iceberg("lake", ("sluice",)) if tables == "iceberg" else Delta(f"{folder}/delta", "here")
    place = IcebergPlace(Path(folder)) if tables == "iceberg" else DeltaPlace(Path(folder))
    SparkStore(spark, kind).read_runs()
    for build in ("first", "second"):
        first: RunsStore = SparkStore(spark, kind) if engine == "spark" else place.store()
        late = SparkStore(spark, kind)
        first.read_runs()
        late.read_runs()
        first.count(row_of(build), [])
        with contextlib.suppress(IncompleteError):
            late.count(row_of(f"{build} late"), [])
            print("both have published")
            return
        found = [one["build_id"] for one in SparkStore(spark, kind).read_runs()]
        assert build in found
        assert not any("late" in one for one in found), found
    print("only one has published")


def row_of(build: str) -> pa.Table:
    return pa.Table.from_pylist([{"scope": "hour", "build_id": build}], schema=SCHEMA)


if __name__ == "__main__":
    main(*sys.argv[1:])
