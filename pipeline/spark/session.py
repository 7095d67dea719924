"""Creates one Spark session without log output: on this machine, on a named cluster, or the session of `spark-submit`."""

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from pipeline.errors import BadInputError
from pipeline.memory import ARROW_KEEPS, heap_mib, memory_bytes
from pipeline.session_settings import DEFAULTS, SUBMITTED, SessionSettings
from pipeline.spark.failures import HEAP, failure_line, reported_in_one_line, stopped
from pipeline.spark.parallelism import FOR_MANY_FILES

LOOPBACK: Final = "127.0.0.1"
LOCAL: Final = "local[*]"

LOCAL_ENGINE_HINT: Final = " (all but stream do without, by --engine local; rollup needs DuckDB, `pip install duckdb`)"
MASTERS: Final = ("local", "spark://", "yarn", "k8s://")

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # When enabled, PySpark sends the JVM the source line of each column expression. This takes a third of all calls, and no message of
    # the pipeline shows these lines.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    f"spark.executorEnv.{ARROW_KEEPS[0]}": ARROW_KEEPS[1],  # for Python workers
    **FOR_MANY_FILES,
}

LOCAL_SETTINGS: Final = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Connects the JVM and its Python workers. Over TCP each task waits 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "pipeline.spark.daemon",
}

FOR_PYTHON_TASKS: Final = {
    "spark.sql.adaptive.enabled": "false",  # a plan is made once, not again after each shuffle
    "spark.sql.codegen.wholeStage": "false",
}
"""Settings for a command whose queries only move data between Python tasks."""
_QUICK_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""Option of the JVM for such a command: the optimizing compiler would take longer than the code that it makes faster."""

PARTITIONS: Final = "spark.sql.shuffle.partitions"

LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")

_OPEN: Final[list[Any]] = []
"""The session of the block that runs, if one does."""


@contextlib.contextmanager
def session(settings: SessionSettings = DEFAULTS, *, application: str = "sluice-meter", python_tasks: bool = False) -> Iterator[Any]:
    """Start Spark for a block, with a notice on stderr. A block inside another one gets its session, with the settings of that one.

    Args:
        settings: how Spark starts.
        application: name of the Spark application.
        python_tasks: the queries of the block only move data between Python tasks.

    Raises:
        BadInputError: PySpark or Java is not installed, or the master is invalid.
        BadInputError, IncompleteError: an exception of a task, or a failure of Spark.
    """
    if _OPEN:
        with reported_in_one_line():
            yield _OPEN[0]
        return
    with _started(settings, application, python_tasks=python_tasks) as spark:
        _OPEN.append(spark)
        try:
            yield spark
        finally:
            _OPEN.clear()


@contextlib.contextmanager
def _started(settings: SessionSettings, application: str, *, python_tasks: bool) -> Iterator[Any]:
    master, verbose, conf, driver_memory = settings
    _check_master(master)
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BadInputError(
            f'Spark cannot start: PySpark is not installed; run `pip install "pyspark>=4,<5" "pandas>=2.2,<3"`{LOCAL_ENGINE_HINT}'
        ) from error
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise BadInputError(f"Spark cannot start: no Java found; install a JDK 17 and set JAVA_HOME{LOCAL_ENGINE_HINT}")
    if master is None and SUBMITTED not in os.environ:
        master = LOCAL
    if not verbose:
        logging.getLogger().addFilter(_is_not_of_py4j)
    builder = SparkSession.builder.appName(application)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            for key, value in LOCAL_SETTINGS.items():
                builder = builder.config(key, value)
    if SUBMITTED not in os.environ:
        builder = builder.config("spark.driver.extraJavaOptions", _java_options(verbose=verbose, python_tasks=python_tasks))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if SUBMITTED not in os.environ:  # Spark's default is 1 GiB on every machine
        if driver_memory is not None:
            os.environ[HEAP] = driver_memory
        os.environ.setdefault(HEAP, f"{heap_mib(memory_bytes())}m")
    if SparkSession.getActiveSession() is None:
        click.echo(f"sluice: starting Spark on {master or 'the cluster of spark-submit'}, which takes some seconds ...", err=True)
    for key, value in {**SETTINGS, **(FOR_PYTHON_TASKS if python_tasks else {}), **dict(conf)}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError, OSError) as error:
        raise BadInputError(f"--master {master}: Spark does not start there ({failure_line(str(error))})") from error
    spark.sparkContext.setLogLevel("WARN" if verbose else "OFF")  # failures are raised as exceptions and reported in one line
    if str(spark.sparkContext.master).startswith("local") and PARTITIONS not in dict(conf):  # Spark's default of 200 tasks suits a cluster
        spark.conf.set(PARTITIONS, max(2, spark.sparkContext.defaultParallelism))
    process = getattr(spark.sparkContext._gateway, "proc", None)
    with stopped(spark, process):
        yield spark


def _java_options(*, verbose: bool, python_tasks: bool) -> str:
    """Return the options of the JVM that the command starts. It begins with its log settings, since it logs before a level can be set."""
    log = [f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"] if LOG_SETTINGS.is_file() and not verbose else []
    return " ".join([*log, *([_QUICK_COMPILER] if python_tasks else [])])


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Drop Py4J's records: it logs the traceback of each broken connection to the root logger."""
    return record.module != "java_gateway"


def _check_master(master: str | None) -> None:
    """Refuse an invalid master, since Spark would answer with the traceback of a program that it started."""
    if master is not None and not master.startswith(MASTERS):
        raise BadInputError(f'--master: "{master}" is no place where Spark runs; write local[*], spark://HOST:PORT, yarn or k8s://...')
