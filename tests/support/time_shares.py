"""Where the time of a test run goes: one line per layer (the folder under tests/), printed before pytest's closing line."""

import time

import pytest

LAYERS = ("protocol", "quota", "proxy", "contract", "support", "fuzz", "scenario", "integration")
"""Cheap ones first: what is broken below is seen before a broker starts."""


def layer_of(nodeid: str) -> str:
    """Return the folder under tests/ that a test lives in."""
    parts = nodeid.split("/")
    return parts[1] if len(parts) > 2 else "tests"


def rank(nodeid: str) -> int:
    """Return a layer's place in the order of a run; unknown ones come before those that need processes."""
    layer = layer_of(nodeid)
    return LAYERS.index(layer) if layer in LAYERS else LAYERS.index("scenario")


class TimeShares:
    """A pytest plugin that adds up seconds, fixtures included.

    Args:
        before: name -> seconds of what ran before pytest.
    """

    def __init__(self, before: dict[str, float] | None = None) -> None:
        self._before = before or {}
        self._seconds: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._started = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test to its layer."""
        layer = layer_of(report.nodeid)
        self._seconds[layer] = self._seconds.get(layer, 0.0) + report.duration
        self._counts[layer] = self._counts.get(layer, 0) + (report.when == "call" or report.skipped)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        total = time.monotonic() - self._started
        rest = total - sum(self._seconds.values())
        rows = [(name, seconds, "") for name, seconds in self._before.items()]
        rows += [(name, seconds, f"{self._counts[name]} tests") for name, seconds in self._seconds.items()]
        rows.append(("collecting and the rest", rest, ""))
        whole = total + sum(self._before.values())
        terminalreporter.section("share of time")
        for name, seconds, remark in rows:
            terminalreporter.write_line(f"{name:<24} {seconds:7.1f} s {100 * seconds / whole:5.1f} %  {remark}".rstrip())
