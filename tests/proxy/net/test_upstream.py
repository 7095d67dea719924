"""The timeout of a connection attempt to a broker."""

import asyncio
from typing import Any

import pytest

from proxy.base.host_port import HostPort
from proxy.net.upstream.connector import Connector, UpstreamUnreachableError

BROKER = HostPort("127.0.0.1", 9)
NEVER_MS = 3_600_000


@pytest.fixture
async def connector(monkeypatch: pytest.MonkeyPatch) -> Connector:
    """Return a connector whose brokers do not answer."""
    loop = asyncio.get_running_loop()

    async def silence(*_arguments: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(loop, "create_connection", silence)
    return Connector(loop)


async def test_every_attempt_has_its_own_deadline(connector: Connector) -> None:
    """Each connection attempt ends at its own timeout, whatever attempts began before it."""
    patient = asyncio.create_task(connector.connect(asyncio.Protocol, BROKER, NEVER_MS))
    await asyncio.sleep(0)
    for timeout_ms in (2, 1):
        with pytest.raises(UpstreamUnreachableError, match=f"127.0.0.1:9: no answer within {timeout_ms} ms"):
            await connector.connect(asyncio.Protocol, BROKER, timeout_ms)
    both = [connector.connect(asyncio.Protocol, BROKER, timeout_ms) for timeout_ms in (3, 1)]
    ends = await asyncio.gather(*map(asyncio.create_task, both), return_exceptions=True)
    assert [str(end) for end in ends] == [f"127.0.0.1:9: no answer within {timeout_ms} ms" for timeout_ms in (3, 1)]
    assert not patient.done()
    patient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await patient
    assert connector._due_s == {}
    assert connector._late == set()
    connector.close()
