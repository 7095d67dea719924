"""The row by which the members of a fleet know what each has used of a declared group below a paced one."""

import numpy as np
import pytest

from proxy.fleet.rows import FleetRows
from proxy.shared_usage.paced.fleet_row import USAGE, FleetRow
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import MEMBER_TAG, ScopeRows, SharedUsage, group_digest
from quota.entity import ClientQuotaType
from quota.paced_schedule import MS_NS
from tests.support.fleet.fleet_members import KEYS, workers_of
from tests.support.memory.shared_workers import new_segment

SCOPE, TAG, KEY = "1", "group a", (("declared-group", "all"),)
NOW_MS, RECENT_MS = 1_000_000, 1_000


@pytest.fixture
def segment() -> Segment:
    """The segment of two workers and a hub."""
    return new_segment(2, has_fleet=True)


def row_of(segment: Segment, worker: int) -> FleetRow:
    """Return the row of a worker that begins."""
    usage = SharedUsage(segment, worker, fleet_key=KEYS.digests)
    return FleetRow(ScopeRows(usage, SCOPE, ClientQuotaType.PRODUCE, is_paced=True), KEY, TAG)


class Hub:
    """The hub of the fleet, as far as it reads and writes this row."""

    def __init__(self, segment: Segment) -> None:
        segment.enter(workers_of(segment), NOW_MS)
        digest = group_digest(SCOPE, ClientQuotaType.PRODUCE.value, (*KEY, (MEMBER_TAG, f"{USAGE}{TAG}")), KEYS.digests)
        self.rows = FleetRows(segment)
        self.row = np.array([self.rows.claim(digest, NOW_MS)])

    def record(self, amount: int, now_ms: int) -> None:
        """Add usage of other members."""
        self.rows.record(self.row, np.array([amount]), now_ms)

    @property
    def own_total(self) -> int:
        """What the workers have used."""
        return int(self.rows.reading(self.row).totals[0])


def test_one_worker_takes_what_others_have_used(segment: Segment) -> None:
    """Usage of other members is taken once, by the worker that looks first, and each worker knows of it; also after one begins anew."""
    here, there, hub = row_of(segment, 0), row_of(segment, 1), Hub(segment)
    hub.record(500, NOW_MS)
    assert [row.taken(RECENT_MS, NOW_MS)[:2] for row in (here, there)] == [(500, 500), (0, 500)]
    hub.record(300, NOW_MS + 50)
    assert [row.taken(RECENT_MS, NOW_MS + 50)[:2] for row in (there, here)] == [(300, 300), (0, 300)]
    hub = Hub(segment)
    assert row_of(segment, 0).taken(RECENT_MS, NOW_MS + 60) == (0, 800, True)
    hub.record(70, NOW_MS + 70)
    assert there.taken(RECENT_MS, NOW_MS + 70) == (70, 70, False)


def test_what_was_used_long_ago_is_not_charged(segment: Segment) -> None:
    """A worker that has not looked for long takes only what was used in the last time."""
    here, hub = row_of(segment, 0), Hub(segment)
    hub.record(900, NOW_MS)
    assert here.taken(RECENT_MS, NOW_MS) == (900, 900, True)
    hub.record(300, NOW_MS + 5_000)
    hub.record(200, NOW_MS + 60_000)
    assert here.taken(RECENT_MS, NOW_MS + 60_000) == (200, 200, True)
    assert here.taken(RECENT_MS, NOW_MS + 60_010) == (0, 0, False)


def test_the_hub_publishes_what_all_workers_have_used(segment: Segment) -> None:
    """The total of a member is that of its workers, also of one that was replaced, less what they took back."""
    here, there, hub = row_of(segment, 0), row_of(segment, 1), Hub(segment)
    here.add(1_000, NOW_MS)
    there.add(400, NOW_MS)
    there.add(-150, NOW_MS + 5)
    row_of(segment, 0).add(50, NOW_MS + 10)
    assert hub.own_total == 1_300


def test_a_row_is_used_by_one_object_of_a_worker(segment: Segment) -> None:
    """When the group of a member is made anew, its row is for the new object as soon as the old one has released it."""
    rows = ScopeRows(SharedUsage(segment, 0, fleet_key=KEYS.digests), SCOPE, ClientQuotaType.PRODUCE, is_paced=True)
    before, after, hub = FleetRow(rows, KEY, TAG), FleetRow(rows, KEY, TAG), Hub(segment)
    before.add(100, NOW_MS)
    after.add(10, NOW_MS)
    assert hub.own_total == 100
    before.release()
    after.add(10, NOW_MS + 1)
    assert hub.own_total == 110


def test_the_part_of_a_proxy_is_one_over_its_workers(segment: Segment) -> None:
    """A worker goes on with the virtual time that another one has charged last. With two members each has half of a share."""
    here, there, hub = row_of(segment, 0), row_of(segment, 1), Hub(segment)
    hub.rows.set_others(40, 1)
    now_ns = NOW_MS * MS_NS
    for row in (here, there):
        row.taken(RECENT_MS, NOW_MS)
    here.charge(100 * MS_NS, now_ns, 1_000 * MS_NS)
    there.charge(50 * MS_NS, now_ns, 1_000 * MS_NS)
    assert there.virtual_ns == now_ns + 300 * MS_NS
    here.take_back(20 * MS_NS, now_ns)
    assert here.virtual_ns == now_ns + 260 * MS_NS
