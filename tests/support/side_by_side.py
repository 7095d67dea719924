"""Divides a run of all tests among processes that run side by side.

Most tests wait: for sockets, for brokers, for a quota. So there are two processes more than there are processors. Tests of one file stay
together and in order, since they share fixtures; those of the Spark session stay together, since each session is a JVM. Each process starts
the brokers that its tests use.
"""

import os
from typing import Final

import pytest

from tests.support.time_shares import rank

WORKERS_MAX: Final = 6
"""The memory of a test process, which may run two brokers and their tools: 2 GB."""
SPARK: Final = "spark"


def options() -> list[str]:
    """Return the options of pytest-xdist for a run of everything."""
    workers = min((os.cpu_count() or 1) + 2, WORKERS_MAX)
    return ["--numprocesses", str(workers), "--dist", "loadgroup", "--no-loadscope-reorder"]


def worker() -> tuple[int, int]:
    """Return (number of this process, number of processes); (0, 1) for a run in one process."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is one of several."""
    return hasattr(config, "workerinput")


def divide(items: list[pytest.Item]) -> None:
    """Assign each test to a group, long groups first, so that no process runs one alone at the end."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_place)


def _group(item: pytest.Item) -> str:
    return SPARK if SPARK in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]


def _place(item: pytest.Item) -> tuple[bool, bool, int]:
    is_spark = SPARK in getattr(item, "fixturenames", ())
    is_long = item.get_closest_marker("long") is not None
    return not (is_long or is_spark), is_spark, -rank(item.nodeid)
