"""Fixtures of the tests of paced groups."""

from collections.abc import Iterator

import pytest

from proxy.enforcement.paced.factory import PacedGroups
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import BOUND


@pytest.fixture
def paced() -> Iterator[ProxyFixture]:
    """Yield a proxy with a burst of a second where client-id etl may produce and fetch 1,000 bytes per second."""
    with ProxyFixture(produce=BOUND, fetch=BOUND, factories=PacedGroups(1_000)) as proxy:
        yield proxy
