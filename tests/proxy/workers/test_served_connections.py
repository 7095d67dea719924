"""A worker without a supervisor of its own reports its open connections to the present supervisor of its runtime folder."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.session.login.principal_connections import PrincipalConnections
from proxy.workers.handover import served_connections
from proxy.workers.handover.handover_listener import HandoverListener
from proxy.workers.handover.messages import ConnectionsChanged
from proxy.workers.handover.orphan import Orphan
from proxy.workers.handover.parts import KnownBrokers
from proxy.workers.handover.place import Place
from proxy.workers.handover.served_connections import ServedConnections
from quota.entity import KafkaPrincipal
from tests.support.scripted.scripted_sockets import until

ALICE, BOB = (0, "192.0.2.1"), (0, "192.0.2.2")
USER = KafkaPrincipal("User", "alice")


class Present:
    """The present supervisor, with the connections of workers that it counts."""

    def __init__(self, place: Place, *, counts: bool = True) -> None:
        self.listeners: Counter[str] = Counter()
        self.addresses: Counter[tuple[int, str]] = Counter()
        self.principals: Counter[str] = Counter()
        self.ended = 0
        self.listener = HandoverListener(place.listen(), Orphan(0, -1, KnownBrokers), None, lambda: None, self._follow if counts else None)

    async def _follow(self, changes: AsyncIterator[ConnectionsChanged]) -> None:
        async for message in changes:
            self.listeners.update(dict(message.listeners))
            self.addresses.update({(table, address): change for table, address, change in message.addresses})
            self.principals.update({name: change for _, name, change in message.principals})
        self.ended += 1

    def counts(self) -> tuple[dict[str, int], dict[tuple[int, str], int], dict[str, int]]:
        """Return all counts above 0."""
        return dict(+self.listeners), dict(+self.addresses), dict(+self.principals)


async def test_a_worker_reports_numbers_then_changes_to_each_supervisor_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers come first, changes follow, the next supervisor gets the numbers again, and the end of the worker ends the report."""
    monkeypatch.setattr(served_connections, "RETRY_S", 0.01)
    place = Place(tmp_path / "run")
    principals = PrincipalConnections()
    served = ServedConnections(principals)
    for key in (ALICE, ALICE, BOB):
        served.passed("edge", key)
    served.ended("edge", BOB)
    principals.change(USER, 1)
    reporting = asyncio.ensure_future(served.report_forever(place.socket_path))
    silent = Present(place, counts=False)  # as a worker without a supervisor: it closes the connection
    await asyncio.sleep(0.05)
    first = Present(place)
    await silent.listener.stop()
    await until(lambda: first.counts() == ({"edge": 2}, {ALICE: 2}, {"alice": 1}))
    served.passed("edge", BOB)
    served.ended("edge", ALICE)
    principals.change(USER, -1)
    await until(lambda: first.counts() == ({"edge": 2}, {ALICE: 1, BOB: 1}, {}))
    second = Present(place)
    await first.listener.stop()
    await until(lambda: second.counts() == ({"edge": 2}, {ALICE: 1, BOB: 1}, {}))
    served.ended("edge", BOB)
    await until(lambda: second.counts() == ({"edge": 1}, {ALICE: 1}, {}))
    assert second.ended == 0
    reporting.cancel()
    await until(lambda: second.ended == 1)
    await second.listener.stop()
    place.close()
