"""Members of a group that all want more than they get, at a real broker: their shares by a schedule, in one process and in several ones.

The members of a row share a bound: clients of one group from different addresses, or groups with one parent and a weight each. In a fleet
only groups have shares over all proxies. Connections of the first group of a row are then at one proxy, and those of the others at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.harness.arms import start_sluice
from bench.harness.engine import Engine
from bench.harness.raw_client import Passed, Place, saturate
from bench.paced.loads import are_due
from bench.paced.real import BOUND, STEADY_S, Way, together
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import create_topic

TOPIC: Final = "paced-shares"
SUM_GOAL: Final = 0.98
"""Least that all members of a row get, over the bound."""


class Client(NamedTuple):
    """A member: connections with one Produce in flight each, of this many bytes."""

    connections: int
    size: int
    weight: float = 1.0

    @property
    def name(self) -> str:
        """The member in a table."""
        return f"{self.connections} x {self.size // 1_000:,} kB" + (f", weight {self.weight:g}" if self.weight != 1.0 else "")


class Row(NamedTuple):
    """Members that share a bound.

    Attributes:
        clients: the members.
        by_group: whether each is a group with one parent; False: they are addresses of one group.
    """

    clients: tuple[Client, ...]
    by_group: bool = False

    @property
    def name(self) -> str:
        """The row in a table."""
        kind = "groups" if self.by_group else "addresses"
        return f"{kind}: {'; '.join(client.name for client in self.clients)}"

    @property
    def parts(self) -> list[float]:
        """The part of the bound that is due to each member."""
        whole = sum(client.weight for client in self.clients)
        return [client.weight / whole for client in self.clients]


ROWS: Final = (
    Row((Client(1, 100_000), Client(16, 100_000))),
    Row((Client(16, 10_000), Client(16, 1_000_000))),
    Row((Client(1, 10_000), Client(16, 1_000_000))),
    Row((Client(1, 100_000, 3.0), Client(16, 100_000)), by_group=True),
    Row((Client(16, 10_000, 3.0), Client(16, 1_000_000)), by_group=True),
    Row((Client(1, 10_000, 3.0), Client(16, 1_000_000)), by_group=True),
)


def tables_of(rows: Sequence[Row]) -> list[str]:
    """Return the configuration of the groups of all rows."""
    tables: list[str] = []
    for number, row in enumerate(rows):
        match = [] if row.by_group else ["[group.match]", f'client_id = ["{number}-*"]']
        tables += ["[[group]]", f'name = "row-{number}"', *match, "[group.budget]", f"producer_byte_rate = {BOUND}"]
        for member, client in enumerate(row.clients if row.by_group else ()):
            name = f'name = "row-{number}-{member}"'
            tables += ["[[group]]", name, f'parent = "row-{number}"', f"weight = {client.weight:g}"]
            tables += ["[group.match]", f'client_id = ["{number}-{member}"]']
    return tables


def share_lines(seconds: int, ways: Sequence[Way], rows: Sequence[Row] = ROWS) -> Iterator[str]:
    """Yield the table; all rows of one way run at the same time."""
    yield "| members | pacing | due | shares | sum | disconnects | goal |"
    yield "|---|---|---|---|--:|--:|---|"
    with ExitStack() as stack:
        engine = Engine()
        stack.callback(engine.close)
        cluster = stack.enter_context(KafkaCluster(KRAFT, name="paced-shares", settings={"log.retention.bytes": 2_000_000_000}))
        with JavaTools(KRAFT) as tools:
            create_topic(tools, cluster.bootstrap, TOPIC)
        port = int(cluster.bootstrap.rsplit(":", 1)[1])
        for way in ways:
            its_rows = [row for row in rows if row.by_group or way.members == 1]
            flags = ["--config", str(_configuration(way, engine.folder, its_rows))]
            with ExitStack() as arms:
                ports: list[int] = []
                for _ in range(way.members):
                    arm = start_sluice(port, engine.folder, flags=flags)
                    arms.callback(arm.stop)
                    ports.append(arm.port)
                found = asyncio.run(_passed(ports, seconds, its_rows))
            for row, passed in zip(its_rows, found, strict=True):
                yield _line(row, way, passed, seconds)


def _configuration(way: Way, folder: Path, rows: Sequence[Row]) -> Path:
    path = way.write_configuration(folder)
    path.write_text("\n".join([path.read_text(), *tables_of(rows), ""]))
    return path


async def _passed(ports: Sequence[int], seconds: int, rows: Sequence[Row]) -> list[list[Passed]]:
    """Run the clients of all rows; return what passed of each member, by row."""
    return await asyncio.gather(
        *(
            asyncio.gather(*(_passed_of(row, number, member, ports, seconds) for member in range(len(row.clients))))
            for number, row in enumerate(rows)
        )
    )


async def _passed_of(row: Row, number: int, member: int, ports: Sequence[int], seconds: int) -> Passed:
    """Run the clients of one member; return what passed of it at all proxies."""
    client, its_ports = row.clients[member], ports[:1] if member == 0 else ports
    source = None if row.by_group else f"127.0.0.{member + 2}"
    places = [Place(port, f"{number}-{member}", TOPIC, client.size, source=source) for port in its_ports]
    count = client.connections // len(places)
    return together(await asyncio.gather(*(saturate("produce", place, count, seconds) for place in places)))


def _line(row: Row, way: Way, passed: Sequence[Passed], seconds: int) -> str:
    shares = [one.rate(STEADY_S, seconds) / BOUND for one in passed]
    is_due = are_due([share / sum(shares) for share in shares], row.parts)
    goal = "ok" if is_due and sum(shares) >= SUM_GOAL else "miss"
    due, got = (", ".join(f"{part:.3f}" for part in parts) for parts in (row.parts, shares))
    return f"| {row.name} | {way.name} | {due} | {got} | {sum(shares):.3f} | {sum(one.disconnects for one in passed)} | {goal} |"
