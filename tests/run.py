"""`python -m tests.run [pytest arguments]`: fetch real brokers and clients into build/, then run pytest once.

Without arguments all layers run in several processes; with arguments pytest runs in one process. The summary of pytest is the last line.

Missing requirements of real brokers are printed before the run and in pytest's list of skips. With CI=true they are a failure.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.support import spark_jvm
from tests.support.kafka.archived_classes import archive_classes
from tests.support.kafka.jars import VERSIONS, KafkaUnavailableError, class_path
from tests.support.processes.node_clients import NodeUnavailableError, installed
from tests.support.side_by_side import options
from tests.support.time_shares import TimeShares
from tests.support.tools import in_ci, missing_to_run


def main(arguments: list[str]) -> int:
    """Run the tests; return pytest's exit code."""
    started = time.monotonic()
    _keep_bytecode()
    with _compiled_tests(), _spark_classes_archived():
        _prepare_brokers()
        _prepare_node_clients()
    shares = TimeShares({"fetching brokers and clients": time.monotonic() - started})
    return int(pytest.main(arguments or options(), plugins=[shares]))


def _keep_bytecode() -> None:
    """Let all child processes share compiled bytecode, whatever the environment sets: hundreds of them start, and compiling is half of
    a start.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@contextlib.contextmanager
def _compiled_tests() -> Iterator[None]:
    """Let one process compile the tests while others are prepared, unless they are compiled: otherwise each process of the run does it."""
    if any((Path(__file__).parent / "__pycache__").glob("conftest.*-pytest-*.pyc")):
        yield
        return
    with subprocess.Popen([sys.executable, "-m", "pytest", "--collect-only", "--quiet"], stdout=subprocess.DEVNULL):
        yield


@contextlib.contextmanager
def _spark_classes_archived() -> Iterator[None]:
    """Let another process archive the classes of Spark meanwhile; see `class_archive`."""
    if missing_to_run():
        yield
        return
    with subprocess.Popen([sys.executable, "-c", f"from {spark_jvm.__name__} import archive_classes; archive_classes()"]):
        yield


def _prepare_brokers() -> None:
    try:
        for version in VERSIONS:
            class_path(version)
        archive_classes()
    except KafkaUnavailableError as problem:
        consequence = "they FAIL, because CI is set" if in_ci() else "they are SKIPPED; all others run"
        print(f"Tests with a real Apache Kafka cannot run here, {consequence}. {problem}", flush=True)


def _prepare_node_clients() -> None:
    try:
        installed()
    except NodeUnavailableError as problem:
        print(f"Tests with a Kafka client for Node cannot run here, they are SKIPPED; all others run. {problem}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
