"""The processes under test use uvloop whatever loop the test uses, so each test runs once."""

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the event loop by name."""
    return {"uvloop": uvloop.new_event_loop}
