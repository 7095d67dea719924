"""The processes under test run on uvloop whatever the test's own loop is: one run of each test is enough."""

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Name the loop."""
    return {"uvloop": uvloop.new_event_loop}
