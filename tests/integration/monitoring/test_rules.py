"""The rules of deploy/prometheus by Prometheus' own tool."""

import shutil
from pathlib import Path

import pytest

from tests.support.monitoring.promtool import promtool
from tests.support.monitoring.queries import RULES

UNIT_TESTS = RULES.with_name("sluice.rules.test.yml")


def test_promtool_accepts_the_rules_and_their_unit_tests() -> None:
    """`promtool` accepts the rules, and their unit tests pass."""
    assert promtool(RULES.parent, "check", "rules", RULES.name) == ""
    assert promtool(UNIT_TESTS.parent, "test", "rules", UNIT_TESTS.name) == ""


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        pytest.param("> 0.9", "> 0.96", id="another-limit"),
        pytest.param("for: 15m", "for: 14m", id="another-time"),
        pytest.param("expr: max by", "expr: sum by", id="a-sum-over-a-fleet"),
        pytest.param(" unless kafka_sluice_closes_total", " or kafka_sluice_closes_total", id="an-alert-that-never-ends"),
    ],
)
def test_the_unit_tests_fail_with_other_rules(tmp_path: Path, written: str, instead: str) -> None:
    """A rule with another limit, time or aggregation fails the unit tests."""
    text = RULES.read_text()
    assert written in text
    (tmp_path / RULES.name).write_text(text.replace(written, instead))
    shutil.copy(UNIT_TESTS, tmp_path)
    assert "FAILED" in promtool(tmp_path, "test", "rules", UNIT_TESTS.name)
