"""What the walks through whole connections share."""

from collections.abc import Iterator

import pytest

from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import BOUND


@pytest.fixture
def proxy() -> Iterator[ProxyFixture]:
    """A house in which client-id etl may produce and fetch 1,000 bytes per second, in `delay`."""
    with ProxyFixture(produce=BOUND, fetch=BOUND) as proxy:
        yield proxy
