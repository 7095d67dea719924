"""Every scenario runs on both event loops: uvloop, which Sluice uses, and stock asyncio, its fallback.

On uvloop each connection writes past the event loop from its first byte on, as connections do that have lasted.
"""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from proxy.net.connection import Connection


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return both event loops by name."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def direct_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On uvloop, let each connection last from its beginning."""
    made = Connection.client_made

    def client_made(connection: Connection) -> None:
        made(connection)
        if isinstance(connection._loop, uvloop.Loop):
            connection.has_lasted()

    monkeypatch.setattr(Connection, "client_made", client_made)
