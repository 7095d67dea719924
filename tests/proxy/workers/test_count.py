"""The number of workers `auto` is the number of usable cores."""

from pathlib import Path

import pytest

from proxy.workers.count import _quota_cores, usable_cores


@pytest.mark.parametrize(
    ("v2", "v1", "expected"),
    [
        pytest.param("max 100000\n", None, None, id="v2-without-a-quota"),
        pytest.param("150000 100000\n", None, 1.5, id="v2-one-and-a-half-cores"),
        pytest.param(None, ("400000\n", "100000\n"), 4.0, id="v1-four-cores"),
        pytest.param(None, ("-1\n", "100000\n"), None, id="v1-without-a-quota"),
        pytest.param(None, None, None, id="no-cgroup"),
        pytest.param(None, ("400000\n", "0\n"), None, id="no-period"),
    ],
)
def test_the_quota_of_a_cgroup_in_cores(tmp_path: Path, v2: str | None, v1: tuple[str, str] | None, expected: float | None) -> None:
    """The quota of a cgroup in cores is quota divided by period, if there is a quota."""
    files = tmp_path / "cpu.max", tmp_path / "quota", tmp_path / "period"
    if v2 is not None:
        files[0].write_text(v2)
    if v1 is not None:
        files[1].write_text(v1[0])
        files[2].write_text(v1[1])
    assert _quota_cores(*files) == expected


def test_auto_is_at_least_one() -> None:
    """At least one core is usable."""
    assert usable_cores() >= 1
