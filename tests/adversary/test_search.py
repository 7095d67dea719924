"""A short search for bypasses that the seeds do not cover; `python -m bench.adversary` searches longer, with another seed each time."""

import pytest

from tests.adversary.search import GOALS, search

EXAMPLES = 80
FEWER = {"paced_request": 30}
"""Goals whose programs take long, since their requests wait."""


@pytest.mark.parametrize("goal", GOALS)
def test_a_client_that_tries_what_it_can_gets_no_more_than_it_may(goal: str) -> None:
    """A search with a fixed seed finds no program that passes, or keeps unrecorded, more than the bound allows."""
    hole = search(goal, examples=FEWER.get(goal, EXAMPLES))
    assert hole is None, f"{hole.why}\n{hole.program}\n" + "\n".join(hole.outcome.trace)
