"""Every scenario runs on both event loops: uvloop, which Sluice uses, and stock asyncio, its fallback."""

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return both event loops by name."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
