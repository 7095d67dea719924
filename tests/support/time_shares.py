"""Prints the time of a test run: one line per layer (the folder under tests/), printed before pytest's closing line."""

import time
from typing import Final

import pytest

LAYERS = ("protocol", "quota", "proxy", "contract", "support", "fuzz", "adversary", "scenario", "integration")
"""Short layers first, so that their failures show before a broker starts."""
ON_SPARK: Final = "  of them on Spark"
"""The row of tests that share the Spark session, in any layer."""
SPARK_GROUP: Final = "@spark"
"""The suffix of these tests' ids when they ran in another process, see `side_by_side`."""


def layer_of(nodeid: str) -> str:
    """Return the folder under tests/ of a test."""
    parts = nodeid.split("/")
    return parts[1] if len(parts) > 2 else "tests"


def rank(nodeid: str) -> int:
    """Return a layer's position in the order of a run; unknown ones come before those that need processes."""
    layer = layer_of(nodeid)
    return LAYERS.index(layer) if layer in LAYERS else LAYERS.index("scenario")


class TimeShares:
    """A pytest plugin that adds up seconds, fixtures included.

    Args:
        before: name -> seconds of steps before pytest.
    """

    def __init__(self, before: dict[str, float] | None = None) -> None:
        self._before = before or {}
        self._seconds: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._on_spark: set[str] = set()
        self._processes = 1
        self._started = time.monotonic()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Record which tests share the Spark session, whose start counts for the first of them."""
        self._on_spark = {item.nodeid for item in items if "spark" in getattr(item, "fixturenames", ())}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test to its layer."""
        is_on_spark = report.nodeid in self._on_spark or report.nodeid.endswith(SPARK_GROUP)
        names = [layer_of(report.nodeid), *([ON_SPARK] if is_on_spark else [])]
        for name in names:
            self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
            self._counts[name] = self._counts.get(name, 0) + (report.when == "call" or report.skipped)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Record in how many processes the tests run."""
        self._processes = session.config.getoption("numprocesses", default=None) or 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table; shares are of the total time of all processes."""
        total = (time.monotonic() - self._started) * self._processes
        rest = total - sum(seconds for name, seconds in self._seconds.items() if name != ON_SPARK)
        rows = [(name, seconds, "") for name, seconds in self._before.items()]
        rows += [(name, seconds, f"{self._counts[name]} tests") for name, seconds in sorted(self._seconds.items(), key=_by_layer)]
        rows.append(("collecting and the rest", rest, "" if self._processes == 1 else f"in {self._processes} processes side by side"))
        whole = total + sum(self._before.values())
        terminalreporter.section("share of time")
        for name, seconds, remark in rows:
            terminalreporter.write_line(f"{name:<24} {seconds:7.1f} s {100 * seconds / whole:5.1f} %  {remark}".rstrip())


def _by_layer(row: tuple[str, float]) -> tuple[int, str]:
    name, _ = row
    return (rank(f"tests/{name}/"), name) if name != ON_SPARK else (rank("tests/pipeline/"), "pipeline~")
