"""Programs that once got more than allowed, or that a row of the fault tables describes; each is run again unchanged."""

from pathlib import Path

import pytest

from tests.adversary import program
from tests.adversary.proxy_fixture import run
from tests.adversary.search import wrong_with

SEEDS = sorted((Path(__file__).parent / "seeds").rglob("*.json"))


@pytest.mark.parametrize("seed", SEEDS, ids=[seed.stem for seed in SEEDS])
def test_a_program_that_once_got_through_gets_no_more_than_it_may(seed: Path) -> None:
    """A program of the seeds passes no more than the bound, all of it is recorded, and no state of the client remains."""
    outcome = run(program.read(seed))
    assert wrong_with(outcome) is None, "\n".join(outcome.trace)
