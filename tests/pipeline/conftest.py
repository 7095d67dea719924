"""The Spark session that all tests of the pipeline share."""

import itertools
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

from pipeline.session_settings import SessionSettings
from pipeline.spark.failures import HEAP
from pipeline.spark.session import session
from proxy.demo.mock_cluster import MockCluster
from tests.pipeline.support.spark_jvm import FOR_SMALL_JOBS, quick_jvm
from tests.support.tools import in_ci, missing_to_run

ASKED_FOR_BY_SHORT_NAME: Final = ("functions", "PythonUtils")
"""Classes that PySpark looks up for each column expression; each time the JVM searches all jars of some packages."""
_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session on two cores; tests that need it are skipped without Java."""
    missing = missing_to_run()
    if missing and not in_ci():
        pytest.skip(f"Spark cannot run here: missing {', '.join(missing)}")
    # Tests are many small jobs: compiling for the long run costs them more than it brings. Without the optimizing compiler the JVM
    # keeps 48 MB for compiled code, and when that is full, after some roll-ups, it only interprets: every test behind is slow.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", quick_jvm("-XX:ReservedCodeCacheSize=256m"))
    os.environ.setdefault(HEAP, "1g")
    with session(SessionSettings("local[2]")) as started:
        for key, value in FOR_SMALL_JOBS.items():
            started.conf.set(key, value)
        for name in ASKED_FOR_BY_SHORT_NAME:
            setattr(started._jvm, name, getattr(started._jvm, name))
        yield started


@pytest.fixture(scope="session")
def brokers() -> Iterator[MockCluster]:
    """librdkafka's mock cluster."""
    with MockCluster(1) as cluster:
        yield cluster


@pytest.fixture
def mock_topic(brokers: MockCluster) -> str:
    """Return the URL of an empty topic of the mock cluster."""
    name = f"metering-{next(_NUMBERS)}"
    brokers.create_topic(name, 2)
    return f"kafka://{brokers.bootstrap}/{name}"
