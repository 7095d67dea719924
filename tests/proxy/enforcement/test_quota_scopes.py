"""The quota managers of each broker, and what changes when brokers move and settings change."""

from typing import Any

import pytest

from proxy.enforcement.mode import Enforcement
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scope import ClientQuota
from proxy.enforcement.quota_scopes import CallbackChoice, QuotaScopes, QuotaWindows
from proxy.telemetry.client_usage import Usage
from proxy.telemetry.counters import Counters
from quota.callbacks.callback import DefaultQuotaCallback
from quota.callbacks.cluster import Cluster
from quota.entity import ANONYMOUS, ClientQuotaEntity, ClientQuotaType
from tests.support.quota_calls import record_time, record_unchecked

X, Y, Z = ("x", 9092), ("y", 9092), ("z", 9092)
ETL = ClientQuotaEntity(None, "etl")
TABLE = {ClientQuotaType.PRODUCE: {ETL: 1_000.0}}
FULL_TABLE = {quota_type: {ETL: 100.0 * number} for number, quota_type in enumerate(ClientQuotaType, 1)}


class Noted(DefaultQuotaCallback):
    """Kafka's default callback, which records its calls."""

    made: list["Noted"]

    def __init__(self) -> None:
        super().__init__()
        self.configs: list[dict[str, Any]] = []
        self.clusters: list[Cluster] = []
        self.is_closed = False
        self.made.append(self)

    def configure(self, configs: Any) -> None:
        self.configs.append(dict(configs))

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        self.clusters.append(cluster)
        return True

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Noted]:
    """Yield all `Noted` callbacks of this test in order."""
    noted: list[Noted] = []
    monkeypatch.setattr(Noted, "made", noted, raising=False)
    return noted


def scopes(*, per_cluster: bool = False, choice: CallbackChoice | None = None) -> QuotaScopes:
    """Return scopes without brokers."""
    return QuotaScopes(per_cluster=per_cluster, choice=choice or CallbackChoice(), statics={})


def test_a_scope_for_each_broker() -> None:
    """With scope `broker` each address has a scope of its own."""
    proxy = scopes()
    assert proxy.of(X) is proxy.of(X)
    assert proxy.of(X) is not proxy.of(Y)
    assert [scope.label for scope in proxy.all()] == ["x:9092", "y:9092"]


def test_one_scope_for_the_cluster() -> None:
    """With scope `cluster` all addresses share one scope."""
    proxy = scopes(per_cluster=True)
    assert proxy.of(X) is proxy.of(Y)
    assert proxy.of(X).label == "cluster"
    proxy.learn(1, X)
    assert proxy.of(X).label == "cluster"


def test_a_scope_learns_its_node_id() -> None:
    """A scope keeps its sensors when its node id becomes known."""
    proxy = scopes()
    before = proxy.of(X)
    proxy.learn(1, X)
    assert proxy.of(X) is before
    assert before.label == "1"
    proxy.learn(2, Y)
    assert proxy.of(Y).label == "2"


def test_a_broker_that_moved_keeps_its_sensors() -> None:
    """A broker that moves keeps its sensors, and another broker at its old address gets new ones."""
    proxy = scopes()
    proxy.learn(1, X)
    sensors = proxy.of(X)
    proxy.learn(1, Y)
    assert proxy.of(Y) is sensors
    proxy.learn(2, X)
    assert proxy.of(X) is not sensors
    assert [proxy.of(X).label, proxy.of(Y).label] == ["2", "1"]


def test_a_broker_that_moved_to_the_address_of_a_counted_client(made: list[Noted]) -> None:
    """When a broker moves to an address that has a scope already, that scope is closed and connections look up their scope again."""
    proxy = scopes(choice=CallbackChoice(Noted))
    asked: list[str] = []
    proxy.on_moved = lambda: asked.append("again")
    proxy.learn(1, X)
    sensors = proxy.of(X)
    stray = proxy.of(Y)
    proxy.learn(1, Y)
    assert proxy.of(Y) is sensors is not stray
    assert asked == ["again"]
    assert [callback.is_closed for callback in made] == [False, False, True]
    assert len(proxy.callbacks) == 2


def test_a_broker_that_two_routes_lead_to() -> None:
    """A broker that is reached by two addresses has one scope, and each address can move on its own."""
    proxy = scopes()
    asked: list[str] = []
    proxy.on_moved = lambda: asked.append("again")
    sensors, stray = proxy.of(X), proxy.of(Y)
    proxy.learn(1, X)
    proxy.learn(1, Y, 1)
    assert proxy.of(X) is proxy.of(Y) is sensors is not stray
    assert asked == ["again"]
    proxy.learn(1, Z)
    assert proxy.of(Z) is proxy.of(Y) is sensors
    assert (proxy.node_id(X), proxy.node_id(Y), proxy.node_id(Z)) == (None, 1, 1)
    assert proxy.of(X) is not sensors


def test_a_route_to_a_broker_that_no_client_was_connected_to() -> None:
    """A second address of a known broker uses the broker's scope from the first connection on."""
    proxy = scopes()
    proxy.learn(1, X)
    proxy.learn(1, Y, 1)
    assert proxy.of(X) is proxy.of(Y)
    assert [scope.label for scope in proxy.all()] == ["1"]


def test_moves_leave_nothing_behind() -> None:
    """A broker that moves a thousand times has one scope."""
    proxy = scopes()
    proxy.learn(1, ("h0", 1))
    sensors = proxy.of(("h0", 1))
    for number in range(1, 1_000):
        proxy.learn(1, (f"h{number}", 1))
    assert proxy.all() == [sensors]
    assert len(proxy._scopes) == len(proxy._node_ids) == len(proxy._routes) == 1


def test_every_scope_has_the_table() -> None:
    """A quota table applies to existing and later scopes, and removed quotas no longer apply."""
    proxy = scopes()
    before = proxy.of(X)
    proxy.apply_table(TABLE)
    for scope in (before, proxy.of(Y)):
        assert scope.produce.group(ANONYMOUS, "etl", 0).bound == 1_000.0
        assert not scope.fetch.limits
    proxy.apply_table({})
    assert before.produce.limits == {}


def test_a_table_fills_all_four_types() -> None:
    """Each manager gets the limits of its own quota type."""
    proxy = scopes()
    proxy.apply_table(FULL_TABLE)
    scope = proxy.of(X)
    managers = (scope.produce, scope.fetch, scope.request, scope.mutation)
    assert [manager.group(ANONYMOUS, "etl", 0).bound for manager in managers] == [100.0, 200.0, 300.0, 400.0]
    proxy.apply_table(TABLE)
    assert [dict(manager.limits) for manager in managers] == [{ETL: 1_000.0}, {}, {}, {}]


def test_mutations_are_counted_for_the_cluster() -> None:
    """All scopes share one manager of controller mutations, which survives a change of scope."""
    proxy = scopes()
    proxy.apply_table(FULL_TABLE)
    group = proxy.of(X).mutation.group(ANONYMOUS, "etl", 0)
    assert proxy.of(Y).mutation.group(ANONYMOUS, "etl", 0) is group
    proxy.change(per_cluster=True, choice=CallbackChoice(), statics={})
    assert proxy.of(X).mutation.group(ANONYMOUS, "etl", 0) is group


def test_a_new_bucket_is_full() -> None:
    """A new mutation bucket is full, even on a clock near 0."""
    proxy = scopes()
    proxy.apply_table({ClientQuotaType.CONTROLLER_MUTATION: {ETL: 0.3}})
    group = proxy.mutation.group(ANONYMOUS, "etl", 5)
    assert group.tokens(5) == 11 * 1.0 * 0.3
    assert group.tokens(60_000) == 11 * 1.0 * 0.3


def test_windows_are_those_of_the_configuration() -> None:
    """Managers use the configured windows, and request time is throttled for at most one window."""
    proxy = QuotaScopes(per_cluster=False, choice=CallbackChoice(), statics={}, windows=QuotaWindows(5, 2_000, 7, 3_000))
    proxy.apply_table(FULL_TABLE)
    scope = proxy.of(X)
    assert [(one.num_samples, one.window_ms) for one in scope.own_managers] == [(5, 2_000)] * 3
    assert (scope.mutation.num_samples, scope.mutation.window_ms) == (7, 3_000)
    assert record_time(scope.request, ANONYMOUS, "etl", 10**12, 0) == 2_000


def test_groups_are_found_anew_when_something_changed() -> None:
    """A client looks up its groups again after a change of quotas or switches."""
    proxy = scopes()
    client = ClientQuota(proxy.of(X), ANONYMOUS, "etl", Usage("", "etl"), Counters(), Policy(Enforcement()))
    assert (client.request(0), client.mutation(0)) == (None, None)
    proxy.apply_table(FULL_TABLE)
    request, mutation = client.request(0), client.mutation(0)
    assert request is not None
    assert mutation is not None
    assert (request.bound, mutation.bound) == (300.0, 400.0)
    proxy.switch(request=False, mutation=False)
    assert (client.request(0), client.mutation(0)) == (None, None)
    proxy.switch()
    elsewhere = ClientQuota(proxy.of(Y), ANONYMOUS, "etl", Usage("", "etl"), Counters(), Policy(Enforcement()))
    assert elsewhere.request(0) is not client.request(0) is request
    assert elsewhere.mutation(0) is mutation


def test_idle_groups_of_all_types_are_forgotten() -> None:
    """Groups of all types expire after an hour without a record."""
    proxy = scopes()
    proxy.apply_table(FULL_TABLE)
    scope = proxy.of(X)
    for manager in (*scope.own_managers, scope.mutation):
        record_unchecked(manager, ANONYMOUS, "etl", 1.0, 0)
    proxy.expire(3_600_000)
    assert [len(manager.groups()) for manager in (*scope.own_managers, scope.mutation)] == [1, 1, 1, 1]
    proxy.expire(3_600_001)
    assert [len(manager.groups()) for manager in (*scope.own_managers, scope.mutation)] == [0, 0, 0, 0]


def test_switches_reach_every_scope() -> None:
    """Switches of quota types apply to existing and later scopes."""
    proxy = scopes()
    before = proxy.of(X)
    proxy.switch(produce=False, fetch=True, request=False, mutation=True)
    for scope in (before, proxy.of(Y)):
        assert (scope.produce_on, scope.fetch_on, scope.request_on, scope.mutation_on) == (False, True, False, True)


def test_a_callback_for_each_scope(made: list[Noted]) -> None:
    """Each scope, and the mutation manager, has a callback that gets its settings, its broker id, the cluster and its close."""
    proxy = scopes(choice=CallbackChoice(Noted, {"key": "value"}))
    proxy.apply_table(TABLE)
    scope = proxy.of(X)
    proxy.learn(7, X)
    cluster = Cluster("c", (7,), ())
    proxy.update_cluster(cluster)
    proxy.update_cluster(cluster)
    proxy.of(Y)
    of_mutations, first, second = made
    assert of_mutations.configs == [{"key": "value", "broker.id": -1}]
    assert first.configs == [{"key": "value", "broker.id": -1}, {"key": "value", "broker.id": 7}]
    assert first.clusters == second.clusters == of_mutations.clusters == [cluster]
    assert scope.produce.group(ANONYMOUS, "etl", 0).bound == 1_000.0
    proxy.close()
    assert all(callback.is_closed for callback in made)


class ByFirstLetter(DefaultQuotaCallback):
    """A callback whose clients share the configured limits by the first letter of the client-id."""

    def configure(self, configs: Any) -> None:
        self.limits = {ClientQuotaType(name): limit for name, limit in configs["limits"].items()}

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: Any, client_id: str) -> dict[str, str]:
        return {"letter": client_id[:1]}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Any) -> float | None:
        return self.limits[quota_type]


@pytest.mark.parametrize("per_cluster", [False, True])
def test_a_callback_groups_every_type_by_its_settings(per_cluster: bool) -> None:
    """A callback groups clients of all four quota types and sets their limits."""
    limits = {quota_type.value: 10.0 * number for number, quota_type in enumerate(ClientQuotaType, 1)}
    proxy = scopes(per_cluster=per_cluster, choice=CallbackChoice(ByFirstLetter, {"limits": limits}))
    proxy.learn(1, X)
    scope = proxy.of(X)
    one, other, stranger = (
        ClientQuota(scope, ANONYMOUS, name, Usage("", name), Counters(), Policy(Enforcement()))
        for name in ("acme-etl", "acme-web", "globex")
    )
    for number, find in enumerate((ClientQuota.produce, ClientQuota.fetch, ClientQuota.request, ClientQuota.mutation), 1):
        group = find(one, 0)
        assert group is not None
        assert find(other, 0) is group is not find(stranger, 0)
        assert (group.tags, group.bound) == ({"letter": "a"}, 10.0 * number)
    assert record_time(scope.request, ANONYMOUS, "acme-etl", 4_000_000_000, 0) == 1_000  # 400 percent-seconds, where ten windows allow 300
    assert record_time(scope.request, ANONYMOUS, "acme-web", 1, 0) == 1_000
    assert record_time(scope.request, ANONYMOUS, "globex", 1, 0) == 0


def test_another_callback_keeps_groups_with_equal_tags(made: list[Noted]) -> None:
    """A change of callback keeps groups with equal tags, and closes the old callback."""
    proxy = scopes()
    proxy.apply_table(TABLE)
    group = proxy.of(X).produce.group(ANONYMOUS, "etl", 0)
    proxy.change(per_cluster=False, choice=CallbackChoice(Noted), statics={})
    assert proxy.of(X).produce.group(ANONYMOUS, "etl", 0) is group
    assert group.bound == 1_000.0
    proxy.change(per_cluster=False, choice=CallbackChoice(), statics={})
    assert [callback.is_closed for callback in made] == [True, True]
    assert proxy.callbacks == []


def test_another_scope_begins_anew() -> None:
    """A change of scope makes new sensors and makes connections look up their scope again."""
    proxy = scopes()
    asked: list[str] = []
    proxy.on_moved = lambda: asked.append("again")
    before = proxy.of(X)
    proxy.change(per_cluster=True, choice=CallbackChoice(), statics={})
    assert asked == ["again"]
    assert proxy.of(X) is not before
    assert proxy.of(X) is proxy.of(Y)


def test_a_static_default(made: list[Noted]) -> None:
    """A static default applies to clients without a quota, in existing and later scopes."""
    proxy = scopes()
    before = proxy.of(X)
    proxy.change(per_cluster=False, choice=CallbackChoice(), statics={ClientQuotaType.PRODUCE: 500.0})
    for scope in (before, proxy.of(Y)):
        assert scope.produce.group(ANONYMOUS, "whoever", 0).bound == 500.0
