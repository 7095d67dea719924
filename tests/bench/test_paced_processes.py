"""Simulated processes that enforce one schedule, and what ADR 12 concludes from them."""

import pytest

from bench.paced.admission import Connection
from bench.paced.processes import ARRANGEMENTS, Processes, process_figures
from bench.paced.simulated import run

SECONDS = 30


@pytest.mark.parametrize(
    ("name", "beyond_ms"),
    [
        ("2 workers, at once", (0, 0)),
        ("2 proxies, D of 250 ms", (1_000, 1_500)),
        ("2 proxies, D of 250 ms, 1 + c", (0, 300)),
        ("2 proxies, D of 250 ms, 1 + c, burst of 100 ms", (0, 300)),
    ],
)
def test_processes_pass_the_bound_together(name: str, beyond_ms: tuple[int, int]) -> None:
    """From second 10 on processes together get the bound; what they pass too much at first depends on what they know and assume."""
    how = next(one for one in ARRANGEMENTS if one.name == name)
    found = process_figures(run(Processes(how, 1), [Connection(0, 100_000) for _ in range(16)], SECONDS), SECONDS)
    assert found.long_run == pytest.approx(1.0, abs=0.03)
    assert beyond_ms[0] <= found.beyond_ms <= beyond_ms[1]
