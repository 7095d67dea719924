"""Paced groups of several workers: together they pass what one process would, in its shares and in its order."""

from collections.abc import Sequence

import pytest

from proxy.enforcement.paced.factory import PacedGroups
from proxy.shared_usage.paced.groups import SharedPacedGroup
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import DeclaredGroup
from quota.paced_schedule import MS_NS, SECOND_NS, PacedSchedule, cost_ns
from tests.proxy.session.paced.test_paced_members import tree
from tests.support.memory.paced_clients import Client, Load
from tests.support.memory.shared_workers import new_segment
from tests.support.memory.worker_proxies import WorkerProxies

BOUND, BURST_MS = 1e6, 1_000
SECONDS, STEADY_S = 30, 10
START_MS = 1_000_000


def played(
    workers: int, loads: Sequence[Load], bound: float = BOUND, groups: Sequence[DeclaredGroup] = ()
) -> tuple[list[Client], list[list[tuple[int, int]]], int]:
    """Let members send for some seconds; return the clients, what passed of each member as (ms, bytes), and the time of the start."""
    used: list[list[tuple[int, int]]] = [[] for _ in loads]
    clients: list[Client] = []
    with WorkerProxies(workers, burst_ms=BURST_MS, produce=bound) as its:
        for proxy in its.proxies:
            proxy.declare(*groups)
        begin_ms = its.now_ms
        for number, load in enumerate(loads):
            for _ in range(load.connections):
                proxy = its.proxies[len(clients) % workers]
                clients.append(Client(proxy, proxy.connect(host=f"10.0.0.{number + 1}"), load, used[number]))
                clients[-1].send()
        for second in range(SECONDS):
            for client in clients if second == STEADY_S else ():
                client.before = client.number
            its.wait(1_000)
    return clients, used, begin_ms


def shares(used: Sequence[Sequence[tuple[int, int]]], begin_ms: int) -> list[float]:
    """Return the part of the bound that each member got from second 10 on."""
    steady_ms = begin_ms + STEADY_S * 1_000
    return [sum(size for at_ms, size in its if at_ms >= steady_ms) / BOUND / (SECONDS - STEADY_S) for its in used]


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_pass_the_bound_together(workers: int) -> None:
    """Greedy connections of one client at several workers get the bound, one request after the other, and each connection equally much."""
    clients, used, begin_ms = played(workers, [Load(16, 50_000)])
    assert shares(used, begin_ms) == pytest.approx([1.0], abs=0.02)
    requests = [client.number - client.before for client in clients]
    assert max(requests) - min(requests) <= 2
    schedule = PacedSchedule(BURST_MS * MS_NS)
    for at_ms, size in used[0]:
        assert schedule.wait_ns(at_ms * MS_NS) <= (workers - 1) * cost_ns(50_000, BOUND), "one request of each other worker at most"
        schedule.charge(cost_ns(size, BOUND), at_ms * MS_NS)


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param([Load(1, 100_000), Load(16, 100_000)], id="1-and-16-connections"),
        pytest.param([Load(1, 10_000), Load(8, 400_000)], id="1-connection-of-small-requests"),
    ],
)
def test_members_have_one_share_over_all_workers(loads: Sequence[Load]) -> None:
    """A member with one connection at one worker gets as much as one with many connections at both, and each of these gets something."""
    clients, used, begin_ms = played(2, loads)
    assert shares(used, begin_ms) == pytest.approx([0.5, 0.5], rel=0.05)
    assert min(client.number for client in clients) >= 2


class Worker:
    """The schedule of one group in one worker."""

    def __init__(self, segment: Segment, number: int, now_ms: int, quota_type: ClientQuotaType = ClientQuotaType.PRODUCE) -> None:
        self.usage = SharedUsage(segment, number)
        make = PacedGroups(BURST_MS, factories=self.usage).of_scope("1").maker(quota_type)
        group = make({"client-id": "etl"}, BOUND, created_ms=now_ms)
        assert isinstance(group, SharedPacedGroup)
        self.group = group

    def passes(self, size: int, now_ms: int) -> bool:
        """Let a Produce pass if the schedule admits it."""
        self.group.refresh(now_ms)
        if self.group.wait_ms(now_ms):
            return False
        self.group.record(size, now_ms)
        return True


def test_usage_of_another_worker_is_known_at_once_from_half_of_the_burst_on() -> None:
    """Two workers that check in the same millisecond do not pass the burst twice."""
    segment = new_segment(2)
    workers = [Worker(segment, number, START_MS) for number in range(2)]
    passed = sum(worker.passes(10_000, START_MS) for _ in range(150) for worker in workers)
    assert passed == 101


def test_a_new_worker_has_the_lead_of_the_others() -> None:
    """A worker that begins while a schedule has been ahead of the clock for long has the same lead, also in place of one that died."""
    segment, now_ms = new_segment(2), START_MS
    old = Worker(segment, 0, now_ms)
    for now_ms in range(START_MS, START_MS + 20_000, 5):
        old.passes(10_000, now_ms)
    lead_ns = old.group.schedule.lead_ns(now_ms * MS_NS)
    assert lead_ns > 0.98 * SECOND_NS
    for number in (1, 0):
        new = Worker(segment, number, now_ms)
        new.group.refresh(now_ms)
        assert new.group.schedule.lead_ns(now_ms * MS_NS) == pytest.approx(lead_ns, abs=0.03 * SECOND_NS)


def test_fetches_of_another_worker_are_reserved() -> None:
    """A fetch counts what fetches at other workers have reserved, and its share of the burst is one among all of them."""
    segment = new_segment(2)
    here, there = (Worker(segment, number, START_MS, ClientQuotaType.FETCH).group for number in range(2))
    for group in (here, there):
        group.refresh(START_MS)
    there.pending += 700_000
    there.open_fetches += 3
    there.refresh(START_MS)
    here.refresh(START_MS)
    assert here.pending == 700_000
    assert here.share_bytes(here.line.at((("a", None),), 0), START_MS) == 1_000_000 // 5
    now_ns = START_MS * MS_NS
    assert here.due_ns(now_ns, 150_000) <= now_ns < here.due_ns(now_ns, 151_000), "two workers may pass one each at the same moment"


def test_what_another_worker_passed_unasked_leaves_a_fetch_unchecked() -> None:
    """The response to a fetch is checked unless another worker has meanwhile passed so much that the schedule would not admit it."""
    segment = new_segment(2)
    here, there = (Worker(segment, number, START_MS, ClientQuotaType.FETCH).group for number in range(2))
    for group in (here, there):
        group.refresh(START_MS)
    assert here.checked_amount(90, 100, START_MS) == 90
    there.record_unchecked(3_000_000, START_MS)
    assert here.checked_amount(90, 100, START_MS) == 0


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize(
    ("first", "second", "own"),
    [
        pytest.param(Load(1, 100_000, 0, "a"), Load(16, 100_000, 0, "b"), None, id="1-and-16-connections"),
        pytest.param(Load(8, 10_000, 0, "a"), Load(8, 400_000, 0, "b"), 0.9, id="small-and-large-requests"),
        pytest.param(Load(1, 10_000, 0, "a"), Load(16, 400_000, 0, "b"), None, id="1-connection-of-small-requests"),
        pytest.param(Load(1, 10_000, 0, "a"), Load(16, 400_000, 0, "b"), 0.9, id="1-connection-of-small-requests-with-bounds"),
        pytest.param(Load(1, 400_000, 0, "a"), Load(3, 10_000, 0, "b"), None, id="1-connection-of-large-requests"),
    ],
)
def test_groups_with_one_parent_share_by_weight_over_all_workers(workers: int, first: Load, second: Load, own: float | None) -> None:
    """Two groups that want more than they get have shares within 5 % of their weights, whichever workers their connections are at."""
    _, used, begin_ms = played(workers, [first, second], groups=tree((3.0, 1.0), (own, own)))
    assert shares(used, begin_ms) == pytest.approx([0.75, 0.25], rel=0.05)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_group_at_its_own_bound_leaves_the_rest_to_the_others_over_all_workers(workers: int) -> None:
    """A group that may pass a tenth of the bound of its parent takes that, although its weight is larger and its requests wait."""
    loads = [Load(16, 20_000, 0, "a"), Load(1, 20_000, 0, "b"), Load(4, 20_000, 0, "c")]
    _, used, begin_ms = played(workers, loads, groups=tree((8.0, 2.0, 1.0), (0.1, None, 2.0)))
    assert shares(used, begin_ms) == pytest.approx([0.1, 0.6, 0.3], rel=0.05)


@pytest.mark.parametrize("workers", [2, 4])
def test_members_of_a_group_share_its_share_over_all_workers(workers: int) -> None:
    """Two principals of a group have equal parts of the share of their group, whichever workers their connections are at."""
    loads = [Load(1, 50_000, 0, "a"), Load(8, 50_000, 0, "a"), Load(4, 50_000, 0, "b")]
    _, used, begin_ms = played(workers, loads, groups=tree((3.0, 1.0), (None, 2.0)))
    assert shares(used, begin_ms) == pytest.approx([0.375, 0.375, 0.25], rel=0.05)


def test_a_group_alone_gets_the_bound_over_all_workers() -> None:
    """A group whose siblings want nothing gets at least 0.98 of the bound, whatever its weight."""
    _, used, begin_ms = played(2, [Load(4, 50_000, 0, "a")], groups=tree((0.01, 100.0), (None, None)))
    assert 0.98 <= shares(used, begin_ms)[0] <= 1.02
