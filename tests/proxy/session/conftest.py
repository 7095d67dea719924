"""Fixtures of the tests of whole connections."""

from collections.abc import Iterator

import pytest

from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import BOUND


@pytest.fixture
def proxy() -> Iterator[ProxyFixture]:
    """Yield a proxy in mode `delay` where client-id etl may produce and fetch 1,000 bytes per second."""
    with ProxyFixture(produce=BOUND, fetch=BOUND) as proxy:
        yield proxy
