"""One Spark session, quiet, on this machine unless told otherwise."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import click

from pipeline.errors import BadInputError

LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def session(master: str, *, application: str = "sluice-meter") -> Iterator[Any]:
    """Start Spark for a block; say on stderr that it takes a moment.

    Raises:
        BadInputError: PySpark or Java is not installed, or `master` is none.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BadInputError(
            '--engine spark: PySpark is not installed; run `pip install "kafka-sluice[pipeline]"`, or use --engine local'
        ) from error
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise BadInputError("--engine spark: no Java found; install a JDK 17 and set JAVA_HOME, or use --engine local")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    click.echo(f"sluice: starting Spark on {master}, which takes some seconds ...", err=True)
    builder = SparkSession.builder.appName(application).master(master)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", LOOPBACK).config("spark.driver.bindAddress", LOOPBACK)
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
    for key, value in quiet.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise BadInputError(f"--master {master}: Spark does not start there ({str(error).splitlines()[0]})") from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
