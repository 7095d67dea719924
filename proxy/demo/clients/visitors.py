"""A stream of new connections from one address. Each connection sends one request and closes."""

import asyncio
import contextlib
from typing import Final

from proxy.base.clock import now_ms
from proxy.demo.pace import Pace
from proxy.demo.report import Stage, Task

VISITORS_ADDRESS: Final = "127.0.0.2"
"""Source address of the stream; all other clients use 127.0.0.1."""
API_VERSIONS_V0: Final = bytes.fromhex("0000000a 0012 0000 00000001 0000")
ANSWER_SECONDS: Final = 8.0


def visitors(task: Task, stage: Stage) -> None:
    """Open a connection at each interval, independent of earlier ones; a connection counts when its request gets a response."""
    asyncio.run(_come(task, stage))


async def _come(task: Task, stage: Stage) -> None:
    host, _, port = task.bootstrap.rpartition(":")
    visits: set[asyncio.Task[None]] = set()
    pace = Pace(task.interval_ms, stage.wait_for_go())
    end_ms = pace.due_ms + task.seconds * 1_000
    while now_ms() < end_ms:
        await asyncio.sleep(max(pace.due_ms - now_ms(), 0) / 1_000)
        visit = asyncio.create_task(_visit(host, int(port), stage))
        visits.add(visit)
        visit.add_done_callback(visits.discard)
        pace.done(now_ms())
    if visits:
        await asyncio.wait(visits, timeout=ANSWER_SECONDS)


async def _visit(host: str, port: int, stage: Stage) -> None:
    """Open one connection. Sluice holds a connection above the quota for a while, and then closes it without a response."""
    with contextlib.suppress(OSError, EOFError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, local_addr=(VISITORS_ADDRESS, 0))
            try:
                writer.write(API_VERSIONS_V0)
                await reader.readexactly(4)
                stage.passed(1)
            finally:
                writer.close()
