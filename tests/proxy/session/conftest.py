"""What the walks through whole connections share."""

from collections.abc import Iterator

import pytest

from tests.support.memory_connection import House
from tests.support.verdicts import BOUND


@pytest.fixture
def house() -> Iterator[House]:
    """A house in which client-id etl may produce and fetch 1,000 bytes per second, in `delay`."""
    with House(produce=BOUND, fetch=BOUND) as house:
        yield house
