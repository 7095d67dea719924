"""Workers whose groups change between window and schedule, each at another moment. The bound is 1 MB/s."""

from collections.abc import Iterator, Mapping

import pytest

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.paced.group import PacedGroup
from proxy.net.connection import Connection
from proxy.shared_usage.shared_groups import Shared
from tests.support.frames.kafka_frames import fetch
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.paced_clients import Client, Load
from tests.support.memory.verdicts import FETCH_VERSION, fetched_of
from tests.support.memory.worker_proxies import WorkerProxies

BOUND, BURST_MS, SIZE = 1e6, 1_000, 50_000
PACED = {"all": "paced"}


@pytest.fixture
def workers() -> Iterator[WorkerProxies]:
    """Yield two workers whose groups have windows at first."""
    with WorkerProxies(2, burst_ms=BURST_MS, paces=False, produce=BOUND, fetch=1e9) as its:
        yield its


def group_of(proxy: ProxyFixture, kind: str = "produce") -> EnforcedGroup:
    """Return the only group of a worker for produced or fetched bytes."""
    (group,) = getattr(proxy.scope, kind).groups()
    assert isinstance(group, Shared)
    return group


def run(its: WorkerProxies, clients: int, pause_ms: int) -> list[list[tuple[int, int]]]:
    """Let clients of each worker begin to send, each later than the one before; return what passes as (ms, bytes), by worker."""
    used: list[list[tuple[int, int]]] = [[] for _ in its.proxies]
    for at in range(clients):
        number = at % len(its.proxies)
        client = Client(its.proxies[number], its.proxies[number].connect(host="10.0.0.1"), Load(1, SIZE), used[number])
        its.loop.call_later(at * pause_ms / 1_000, client.send)
    return used


def passed(used: list[list[tuple[int, int]]], begin_ms: int, end_ms: int) -> list[float]:
    """Return what passed at each worker, over what the bound allows in this time."""
    return [sum(size for at_ms, size in its if begin_ms <= at_ms < end_ms) / BOUND / (end_ms - begin_ms) * 1_000 for its in used]


def test_workers_with_other_leads_share_the_bound(workers: WorkerProxies) -> None:
    """Each worker has the lead of its own window, which has other samples; clients of both get the bound and equal shares."""
    used = run(workers, 8, 287)
    workers.wait(14_700)
    for proxy in workers.proxies:
        proxy.pace(PACED)
        workers.wait(4)
    leads_ms = [group.lead_ms(workers.now_ms) for group in map(group_of, workers.proxies) if isinstance(group, PacedGroup)]
    assert leads_ms[0] != leads_ms[1]
    workers.wait(2_000)
    begin_ms = workers.now_ms
    workers.wait(6_000)
    assert passed(used, begin_ms, workers.now_ms) == pytest.approx([0.5, 0.5], abs=0.02)


def test_a_window_counts_what_a_schedule_let_pass_at_another_worker(workers: WorkerProxies) -> None:
    """A worker that changed back counts in its window what the others pass by a schedule, and waits for no fetch of theirs."""
    first, second = workers.proxies
    used = run(workers, 4, 3)
    workers.wait(1_000)
    for proxy in workers.proxies:
        proxy.pace(PACED)
    workers.wait(12_000)
    first.pace({})
    window, schedule = group_of(first), group_of(second)
    assert (window.is_paced, schedule.is_paced) == (False, True)
    begin_ms = workers.now_ms
    workers.wait(8_000)
    assert sum(passed(used, begin_ms, workers.now_ms)) == pytest.approx(1.0, abs=0.15)
    workers.wait(1_000)
    assert isinstance(window, Shared)
    assert window._sharing.waiting_elsewhere == 0
    assert window.recorded_total == pytest.approx(schedule.recorded_total, abs=4 * SIZE)


def fetching(proxy: ProxyFixture, number: int) -> Peer:
    """Return a connection with a fetch in flight."""
    peer = proxy.connect()
    assert peer.sends(fetch(number, version=FETCH_VERSION)) == [number]
    return peer


def test_fetches_in_flight_stay_reserved_at_other_workers(workers: WorkerProxies, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the connections of a worker change one by one, another worker always knows of all its fetches in flight."""
    first, second = workers.proxies
    peers = [fetching(first, number) for number in (1, 2, 3)]
    other = fetching(second, 4)
    seen: list[float] = []
    repaced = Connection.repaced

    def noted(connection: Connection, replaced: Mapping[EnforcedGroup, EnforcedGroup]) -> None:
        repaced(connection, replaced)
        seen.append(group_of(second, "fetch").pending_at(workers.now_ms))

    monkeypatch.setattr(Connection, "repaced", noted)
    before = group_of(second, "fetch").pending_at(workers.now_ms)
    for table in (PACED, {}):
        first.pace(table)
        workers.wait(20)
        assert group_of(second, "fetch").pending_at(workers.now_ms) == before
    assert seen == [before] * 6
    for number, peer in enumerate(peers, 1):
        peer.answers(fetched_of(700, number))
    other.answers(fetched_of(700, 4))
    workers.wait(20)
    totals = [group_of(proxy, "fetch") for proxy in workers.proxies]
    assert [(group.pending_at(workers.now_ms), group.recorded_total) for group in totals] == [(0, 2_800)] * 2


def test_throttles_of_departed_connections_stay_in_the_row(workers: WorkerProxies) -> None:
    """A throttle that a connection left before the change is taken by a new connection of another worker after it."""
    first, second = workers.proxies
    group, until_ms = group_of_first_request(first), workers.now_ms + 9_000
    group.leave_throttle(until_ms, workers.now_ms)
    group.last_throttle_round_ms = round_ms = workers.now_ms
    for proxy in workers.proxies:
        proxy.pace(PACED)
    there = group_of_first_request(second)
    assert there.last_throttle_round_ms == round_ms
    assert there.take_throttle(workers.now_ms) == until_ms
    assert group_of(first).departed_until(workers.now_ms) == 0


def group_of_first_request(proxy: ProxyFixture) -> EnforcedGroup:
    """Return the group of a worker after a request of 100 bytes."""
    client = Client(proxy, proxy.connect(), Load(1, 100, pause_ms=60_000), [])
    client.send()
    proxy.wait(20)
    return group_of(proxy)
