"""Connections that perform one attack without a pause: python -m bench.attacks.app PORT ATTACK CONNECTIONS

The process prints "ready", runs until its standard input is closed, then prints the number of answers and of closed connections.
"""

import asyncio
import contextlib
import os
import sys

from bench.attacks.frames import Attack, attack
from bench.harness.engine import HOST, READY

NICENESS = 10
"""The attacker shares the machine with the measured client, so it runs at a low priority."""


class Attackers:
    """All connections of one attack."""

    def __init__(self, what: Attack, port: int) -> None:
        self._what = what
        self._port = port
        self.answers = 0
        self.ended = 0

    async def run(self, number: int) -> None:
        """Send requests and read answers until stopped; a connection that closes is replaced."""
        address = (f"127.1.{number // 250}.{1 + number % 250}", 0) if self._what.addresses else None
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(HOST, self._port, limit=1 << 20, local_addr=address)
                try:
                    while True:
                        writer.write(self._what.requests)
                        await writer.drain()
                        for _ in range(self._what.answers or 1):
                            size = int.from_bytes(await reader.readexactly(4))
                            while size:
                                size -= len(await reader.read(min(size, 1 << 20)) or self._fail())
                            self.answers += 1
                finally:
                    self.ended += 1
                    writer.close()

    def _fail(self) -> bytes:
        raise ConnectionResetError


async def main(port: str, name: str, connections: str) -> None:
    """Attack until the process is stopped."""
    os.nice(NICENESS)
    what = attack(name)
    attackers = Attackers(what, int(port))
    tasks = [asyncio.create_task(attackers.run(number)) for number in range(what.addresses or int(connections))]
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    print(attackers.answers, attackers.ended, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
