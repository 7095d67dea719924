"""Groups of one broker, or of the cluster, share a row across workers, also when the broker's node id becomes known."""

from unittest.mock import Mock

import pytest

from proxy.enforcement.quota_scopes import CallbackChoice, QuotaScopes
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import SHARE_LITTLE_MS, SHARE_MS, Shared
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ANONYMOUS, DEFAULT, ClientQuotaEntity, ClientQuotaType
from quota.groups.declared_groups import Conditions, DeclaredGroup, DeclaredGroups, Member
from quota.groups.group import QuotaGroup
from quota.groups.pattern import Pattern
from quota.manager import INACTIVE_MS
from tests.support.memory.shared_workers import new_segment

X, Y = ("x", 9092), ("y", 9092)
ANY_CLIENT = ClientQuotaEntity(client_id=DEFAULT)
TABLE = {quota_type: {ANY_CLIENT: 1_000.0} for quota_type in ClientQuotaType}


class Worker:
    """One worker with its scopes."""

    def __init__(self, segment: Segment, number: int, *, per_cluster: bool = False) -> None:
        self.usage = SharedUsage(segment, number)
        self.scopes = QuotaScopes(per_cluster=per_cluster, choice=CallbackChoice(), statics={}, factories=self.usage)
        self.scopes.apply_table(TABLE)

    def group(self, address: tuple[str, int] = X, client_id: str = "etl", quota_type: str = "produce") -> QuotaGroup:
        """Return the group of an anonymous client at the broker of this address."""
        group = getattr(self.scopes.of(address), quota_type).group(ANONYMOUS, client_id, 0)
        assert isinstance(group, QuotaGroup)
        return group


def two_workers(*, per_cluster: bool = False) -> tuple[Worker, Worker]:
    """Return two workers of one segment."""
    segment = new_segment(2, rows_max=64)
    return Worker(segment, 0, per_cluster=per_cluster), Worker(segment, 1, per_cluster=per_cluster)


@pytest.mark.parametrize("quota_type", ["produce", "fetch", "request"])
def test_each_type_is_shared(quota_type: str) -> None:
    """Produce, fetch and request quotas are each shared between workers, and separate by client-id and broker."""
    first, second = two_workers()
    first.group(quota_type=quota_type).record(9_000, 0)
    for other in ("produce", "fetch", "request"):
        assert (second.group(quota_type=other).record(2_000, 20) > 0) == (other == quota_type)
    assert second.group(client_id="app", quota_type=quota_type).record(9_000, 20) == 0
    assert second.group(Y, quota_type=quota_type).record(9_000, 20) == 0


def test_controller_mutations_are_counted_here_alone() -> None:
    """Mutation quotas are not shared through the segment."""
    first, second = two_workers()
    first.scopes.mutation.group(ANONYMOUS, "etl", 0).record(20_000, 0)
    assert second.scopes.mutation.group(ANONYMOUS, "etl", 0).record(1, 20) == 0


def test_one_budget_over_all_brokers() -> None:
    """With quotas per cluster a client has one quota over all brokers and workers."""
    first, second = two_workers(per_cluster=True)
    first.group(X).record(9_000, 0)
    assert second.group(Y).record(2_000, 20) > 0


def test_a_broker_whose_node_id_becomes_known_takes_its_groups_along() -> None:
    """After a broker's node id becomes known, earlier usage still counts once, and new usage is shared under the node id."""
    first, second = two_workers()
    first.group().record(3_000, 0)
    second.group().record(1_000, 20)
    for worker in (first, second):
        worker.scopes.learn(1, X)
    first.group().record(2_000, 40)
    second.group().record(500, 60)
    first.group().record(0, 80)
    assert first.group().recorded_total == second.group().recorded_total == 6_500
    third = Worker(first.usage.segment, 1)
    third.scopes.learn(1, X)
    third.group().record(0, 100)
    assert third.group().recorded_total == 2_500, "under the node id there is what was used since it is known"


def test_a_worker_that_learns_late_takes_in_what_was_used_under_the_node_id() -> None:
    """A worker that learns a node id late counts once what others used under it before."""
    first, second = two_workers()
    first.scopes.learn(1, X)
    first.group().record(3_000, 0)
    second.group().record(1_000, 20)
    second.scopes.learn(1, X)
    second.group().record(10, 40)
    first.group().record(0, 60)
    assert second.group().recorded_total == 4_010
    assert first.group().recorded_total == 3_010


@pytest.mark.parametrize("route", [0, 1])
def test_an_address_that_turns_out_to_be_a_known_brokers(route: int) -> None:
    """When an address turns out to be a known broker, its own scope releases its rows and the known scope is used."""
    first, _ = two_workers()
    first.scopes.learn(1, X)
    known = first.group(X)
    known.record(1, 0)
    late = first.group(Y)
    late.record(1, 0)
    first.scopes.learn(1, Y, route)
    late.record(1, 20)
    assert isinstance(late, Shared)
    assert late._sharing.row is None
    assert first.group(Y) is known


def test_a_change_of_the_scope_gives_the_rows_up() -> None:
    """After a change of the scope the old rows are released, and their usage no longer counts."""
    first, second = two_workers()
    before = first.group()
    before.record(9_000, 0)
    for worker in (first, second):
        worker.scopes.change(per_cluster=True, choice=CallbackChoice(), statics={})
    assert second.group().record(2_000, 20) == 0
    assert isinstance(before, Shared)
    assert before._sharing.row is None


def test_a_forgotten_group_gives_its_row_up() -> None:
    """A group without a record for an hour releases its row to another group."""
    segment = new_segment(2, rows_max=1)
    worker, refused = Worker(segment, 0), Mock()
    worker.usage.on_row_refused = refused
    worker.group().record(1, 0)
    worker.usage.publish_all(10)
    worker.group(client_id="other").record(1, 20)
    assert refused.call_count == 1
    worker.scopes.expire(INACTIVE_MS + 10)
    worker.group(client_id="other").record(1, INACTIVE_MS + 20)
    worker.usage.publish_all(INACTIVE_MS + 30)
    assert refused.call_count == 1


def test_declared_groups_and_their_parents_are_shared() -> None:
    """The quota of a declared parent group applies to its members in all workers."""
    team = DeclaredGroup("team", None, {ClientQuotaType.PRODUCE: 1_000.0})
    etl = DeclaredGroup("etl", Conditions(client_ids=(Pattern("etl*"),)), {ClientQuotaType.PRODUCE: 5_000.0}, "team")
    app = DeclaredGroup("app", Conditions(client_ids=(Pattern("app*"),)), {ClientQuotaType.PRODUCE: 5_000.0}, "team")
    first, second = two_workers()
    for worker in (first, second):
        worker.scopes.declare(DeclaredGroups([team, etl, app]))
    first.scopes.of(X).produce.group(Member(ANONYMOUS, "etl"), "etl-1", 0).record(6_000, 0)
    app_group = second.scopes.of(X).produce.group(Member(ANONYMOUS, "app"), "app-1", 0)
    assert app_group.record(6_000, 20) == 1_980
    assert app_group.recorded_total == 6_000
    for worker in (first, second):
        worker.scopes.declare(DeclaredGroups([DeclaredGroup("etl", etl.conditions, etl.bounds)]))
    assert second.scopes.of(X).produce.group(Member(ANONYMOUS, "etl"), "etl-2", 40).record(45_000, 40) > 0


def test_a_worker_without_traffic_has_nothing_to_publish() -> None:
    """The callback for unpublished usage is called once per publication, and never without traffic."""
    worker, _ = two_workers()
    called: list[int] = []
    worker.usage.on_unpublished = called.append
    assert called == []
    worker.group().record(1, 0)
    worker.group(client_id="app").record(1, 1)
    worker.group().record(1, 2)
    assert called == [SHARE_MS]
    worker.usage.publish_all(10)
    worker.group().record(1, 11)
    assert called == [SHARE_MS, SHARE_LITTLE_MS]
