"""A short search for what the seeds do not know; `python -m bench.adversary` looks for longer, and elsewhere each time."""

import pytest

from tests.adversary.search import GOALS, search

EXAMPLES = 80


@pytest.mark.parametrize("goal", GOALS)
def test_a_client_that_tries_what_it_can_gets_no_more_than_it_may(goal: str) -> None:
    """No program among those that a search tries passes, or keeps unrecorded, more than the bound allows; the search is always the same."""
    hole = search(goal, examples=EXAMPLES)
    assert hole is None, f"{hole.why}\n{hole.program}\n" + "\n".join(hole.outcome.trace)
