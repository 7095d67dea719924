"""The two example callbacks behave as the documentation describes them."""

from typing import Any

from examples.callbacks.leader_share import LeaderShareQuotas
from examples.callbacks.tenants import TenantQuotas
from quota.callbacks.callback import ClientQuotaCallback
from quota.callbacks.cluster import Cluster, PartitionInfo
from quota.callbacks.guarded_callback import GuardedCallback
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import UNLIMITED, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.group import QuotaGroup
from quota.groups.mutation_group import MutationGroup
from quota.manager import ClientQuotaManager
from quota.request_time import ClientRequestQuotaManager
from tests.support.quota_calls import record

ANONYMOUS = KafkaPrincipal("User", "ANONYMOUS")
TENANTS = {"shared": 1_000, "tenants": {"acme": 10_000, "globex": 5_000}}
MORE = {"request_percentage": {"acme": 50}, "controller_mutation_rate": {"initech": 2}}
TEAMS = {
    "floor": 100,
    "teams": {"orders": {"users": ["orders-writer", "orders-reader"], "topics": ["orders.", "payments."], "bytes_per_second": 30_000}},
}


def manager_with(make: type[ClientQuotaCallback], settings: dict[str, Any]) -> tuple[ClientQuotaManager, GuardedCallback]:
    """Return a produce manager with the configured example, and the guard around it."""
    callback = GuardedCallback(make, now_ns=lambda: 0)
    callback.configure(settings)
    assert callback.last_error is None
    return ClientQuotaManager(ClientQuotaType.PRODUCE, QuotaGroup, callback=callback), callback


def bound_of(manager: ClientQuotaManager, user: str) -> float:
    """Return the bound of a user's next request."""
    return manager.group(KafkaPrincipal("User", user), "any", 0).bound


def test_clients_of_a_tenant_share_one_budget() -> None:
    """When one client of a tenant spends ten windows of the budget, the tenant's other clients have none left, and another tenant has
    its own.
    """
    manager, _ = manager_with(TenantQuotas, TENANTS)
    assert record(manager, ANONYMOUS, "acme-etl", 100_000, 0) == 0
    assert record(manager, ANONYMOUS, "acme-web", 10_000, 0) == 1_000
    assert record(manager, ANONYMOUS, "globex-etl", 50_000, 0) == 0
    assert len(manager.groups()) == 2


def test_who_belongs_to_no_tenant_shares_what_is_left() -> None:
    """All client-ids without a known tenant share one group, so that clients cannot create groups."""
    manager, _ = manager_with(TenantQuotas, TENANTS)
    groups = {manager.group(ANONYMOUS, client_id, 0).key for client_id in ("", "acme", "nobody-1", "nobody-2", "-acme")}
    assert len(groups) == 1
    assert manager.group(ANONYMOUS, "", 0).bound == 1_000


def test_a_stored_quota_of_a_tenant_comes_first() -> None:
    """A stored quota under a tenant's name replaces the configured budget and keeps the history, and its removal restores the budget."""
    manager, _ = manager_with(TenantQuotas, TENANTS)
    acme = ClientQuotaEntity(client_id="acme")
    record(manager, ANONYMOUS, "acme-etl", 100_000, 0)
    manager.update_quota(acme, 5_000.0)
    assert record(manager, ANONYMOUS, "acme-web", 0, 0) == 10_000
    manager.update_quota(acme, None)
    assert record(manager, ANONYMOUS, "acme-web", 0, 0) == 0


def test_a_tenant_has_budgets_of_every_type() -> None:
    """Each quota type has budgets of its own, and a tenant without one of a type is unlimited in it."""
    _, callback = manager_with(TenantQuotas, {**TENANTS, **MORE})
    request = ClientRequestQuotaManager(QuotaGroup, callback=callback)
    assert request.group(ANONYMOUS, "acme-etl", 0) is request.group(ANONYMOUS, "acme-web", 0)
    assert [request.group(ANONYMOUS, name, 0).bound for name in ("acme-etl", "globex-1", "x")] == [50, UNLIMITED, UNLIMITED]
    mutation = ControllerMutationQuotaManager(MutationGroup, callback=callback)
    assert [mutation.group(ANONYMOUS, name, 0).bound for name in ("acme-etl", "initech-1")] == [UNLIMITED, 2]


def orders_cluster(*leaders: int | None) -> Cluster:
    """Return a cluster with a partition of the team for each leader, and one of another team."""
    partitions = [PartitionInfo("orders.new", number, leader) for number, leader in enumerate(leaders)]
    return Cluster("c", (1, 2), (*partitions, PartitionInfo("logs", 0, 1)))


def test_a_share_follows_the_leaders() -> None:
    """A team with two of three partition leaders on this broker has two thirds of its budget, and the bound changes when a leader moves."""
    manager, callback = manager_with(LeaderShareQuotas, {**TEAMS, "broker.id": 1})
    assert bound_of(manager, "orders-writer") == 30_000
    shares = []
    for leaders in [(1, 1, 2), (1, 2, 2), (2, 2, 2), (1, None, 1)]:
        if callback.update_cluster_metadata(orders_cluster(*leaders)):
            manager.refresh_bounds()
        shares.append(bound_of(manager, "orders-reader"))
    assert shares == [20_000, 10_000, 100, 30_000]
    assert len(manager.groups()) == 1
    assert callback.errors == 0


def test_a_cluster_that_changes_no_share_asks_for_no_refresh() -> None:
    """An update of the cluster that changes no share returns False."""
    _, callback = manager_with(LeaderShareQuotas, {**TEAMS, "broker.id": 1})
    assert callback.update_cluster_metadata(orders_cluster(1, 2))
    assert not callback.update_cluster_metadata(orders_cluster(2, 1))


def test_a_broker_learns_its_id_later() -> None:
    """Without a broker id a team has its whole budget, and its share after `configure` with the id."""
    manager, callback = manager_with(LeaderShareQuotas, {**TEAMS, "broker.id": -1})
    callback.update_cluster_metadata(orders_cluster(1, 1, 2))
    assert bound_of(manager, "orders-writer") == 30_000
    callback.configure({**TEAMS, "broker.id": 2})
    manager.refresh_bounds()
    assert bound_of(manager, "orders-writer") == 10_000


def test_who_is_in_no_team_is_free() -> None:
    """Clients without a team are unlimited and share one group."""
    manager, callback = manager_with(LeaderShareQuotas, {**TEAMS, "broker.id": 1})
    assert bound_of(manager, "somebody") == UNLIMITED
    assert (
        ClientRequestQuotaManager(QuotaGroup, callback=callback).group(KafkaPrincipal("User", "orders-writer"), "any", 0).bound == UNLIMITED
    )
