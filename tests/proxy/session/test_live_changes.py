"""Changes of quota, mode, callback, scope and the rule for empty client-ids apply to living connections from the next request on."""

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.enforcement.mode import Mode
from proxy.enforcement.quota_scopes import CallbackChoice
from quota.callbacks.callback import ClientQuotaCallback
from quota.entity import DEFAULT, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from tests.support.frames.kafka_frames import fetch, plain, produced, throttle_ms
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_for, produce_of


def announced(proxy: ProxyFixture, peer: Any, request: bytes, correlation_id: int) -> int:
    """Send a request in `mute`; return the throttle time in its response."""
    proxy.enforcement.mode = Mode.MUTE
    return throttle_ms(peer.asks(request, produced(correlation_id, version=PRODUCE_VERSION)), 0, PRODUCE_VERSION)


def test_a_new_quota(proxy: ProxyFixture) -> None:
    """The next request is judged by the new quota, and the bytes of earlier requests stay recorded."""
    peer = proxy.connect()
    assert announced(proxy, peer, produce_of(8_000, 1), 1) == 0
    proxy.set_quota(produce=500.0)
    assert announced(proxy, peer, produce_of(100, 2), 2) == 6_200
    proxy.wait(7_000)
    proxy.set_quota(produce=1e9)
    assert announced(proxy, peer, produce_of(100_000, 3), 3) == 0
    assert proxy.closed == []


def test_a_removed_quota(proxy: ProxyFixture) -> None:
    """A client whose quota was removed is neither throttled nor has its Fetch changed."""
    peer = proxy.connect()
    proxy.scopes.apply_table({ClientQuotaType.PRODUCE: {}, ClientQuotaType.FETCH: {}})
    assert announced(proxy, peer, produce_for(60_000, 1), 1) == 0
    request = fetch(2)
    peer.client.arrive(request)
    assert peer.broker.take() == request


def test_quotas_switched_off_in_mid_throttle(proxy: ProxyFixture) -> None:
    """After byte quotas are switched off, the next response ends the throttle and the requests behind it are forwarded together."""
    peer = proxy.connect()
    assert announced(proxy, peer, produce_for(2_000, 1), 1) == 2_000
    proxy.scopes.switch(produce=False, fetch=False)
    proxy.wait(2_000)
    assert peer.sends(produce_of(100, 2), produce_of(100, 3), produce_of(100, 4)) == [2]
    assert peer.answers(produced(2, version=PRODUCE_VERSION)) == [2]
    assert peer.forwarded() == [3, 4]


def test_a_first_quota() -> None:
    """A connection that was opened before the process had any quota is throttled once there is one."""
    with ProxyFixture() as proxy:
        peer = proxy.connect()
        assert announced(proxy, peer, produce_of(50_000, 1), 1) == 0
        proxy.set_quota(produce=1_000.0)
        assert announced(proxy, peer, produce_for(3_000, 2), 2) == 3_000


def test_from_delay_to_mute(proxy: ProxyFixture) -> None:
    """After a change from `delay` to `mute` a held response is sent at its deadline, and the next one is not held."""
    peer = proxy.connect()
    peer.sends(produce_for(3_000, 1))
    assert peer.answers(produced(1, version=PRODUCE_VERSION)) == []
    proxy.enforcement.mode = Mode.MUTE
    proxy.wait(2_999)
    assert peer.delivered() == []
    proxy.wait(1)
    assert peer.delivered() == [1]
    assert announced(proxy, peer, produce_of(1_000, 2), 2) == 4_000


def test_from_mute_to_delay(proxy: ProxyFixture) -> None:
    """After a change from `mute` to `delay` the next response over quota is held."""
    peer = proxy.connect()
    assert announced(proxy, peer, produce_for(3_000, 1), 1) == 3_000
    proxy.enforcement.mode = Mode.DELAY
    proxy.wait(3_000)
    peer.sends(produce_of(1_000, 2))
    assert peer.answers(produced(2, version=PRODUCE_VERSION)) == []
    proxy.wait(4_000)
    assert peer.delivered() == [2]


@pytest.mark.parametrize("verdict_ms", [3_000, 100_000])
@pytest.mark.parametrize("before", [Mode.DELAY, Mode.MUTE])
def test_a_change_to_observe_releases_all_clients(proxy: ProxyFixture, before: Mode, verdict_ms: int) -> None:
    """Held responses are sent, paused clients are read, and throttles end, at once and for all connections."""
    proxy.enforcement.mode = before
    peer, other = proxy.connect(), proxy.connect()
    for one in (peer, other):
        one.sends(produce_for(verdict_ms, 1))
        one.broker.arrive(produced(1, version=PRODUCE_VERSION))
        one.sends(plain(2), plain(3))
        one.broker.take()
    proxy.enforcement.mode = Mode.OBSERVE
    for one in (peer, other):
        one.connection.settings_changed()
    proxy.wait(0)
    for one in (peer, other):
        assert one.delivered() == [1]
        assert one.forwarded() == [2, 3]
        assert one.client.reading
        assert one.broker.reading
    assert proxy.closed == []


class ByPrefix(ClientQuotaCallback):
    """A callback that groups clients by the first letter of their client-id."""

    limit = 1_000.0

    def configure(self, configs: Mapping[str, Any]) -> None:
        pass

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        return {"letter": client_id[:1]}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.limit

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        pass

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        pass

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        return False

    def update_cluster_metadata(self, cluster: Any) -> bool:
        return False

    def close(self) -> None:
        pass


def test_another_callback(proxy: ProxyFixture) -> None:
    """After a change of callback the next request is counted in the group that the new callback names, also on a throttled connection."""
    first, second = proxy.connect(), proxy.connect()
    assert announced(proxy, first, produce_for(2_000, 1), 1) == 2_000
    proxy.scopes.on_moved = lambda: [one.connection.session.count_in(proxy.scopes.of(("b", 1))) for one in (first, second)]
    proxy.scopes.change(per_cluster=False, choice=CallbackChoice(ByPrefix), statics={})
    assert announced(proxy, second, produce_of(9_000, 1, client_id="edge"), 1) == 0
    proxy.wait(2_000)
    assert announced(proxy, first, produce_of(3_000, 2), 2) == 2_000, "etl and edge share the letter e"
    assert proxy.closed == []


def test_more_client_ids_than_a_connection_remembers(proxy: ProxyFixture) -> None:
    """All client-ids of a connection are counted in the new scope, also those beyond the number that a connection caches."""
    peer = proxy.connect()
    names = [f"c{number}" for number in range(40)]
    for at, name in enumerate(names):
        assert announced(proxy, peer, produce_of(100, at, client_id=name), at) == 0
    proxy.scopes.on_moved = lambda: peer.connection.session.count_in(proxy.scopes.of(("b", 1)))
    proxy.scopes.change(per_cluster=True, choice=CallbackChoice(ByPrefix), statics={})
    for at, name in enumerate(names):
        announced(proxy, peer, produce_of(100, at, client_id=name), at)
    (group,) = proxy.scopes.of(("b", 1)).produce.groups()
    assert group.rate(proxy.now_ms) * 10 == 40 * 100


@pytest.mark.parametrize("client_id", [None, ""])
def test_an_empty_client_id_is_the_default_client(proxy: ProxyFixture, client_id: str | None) -> None:
    """A client without a client-id has the quota of the default client-id."""
    proxy.scope.produce.update_quota(ClientQuotaEntity(None, DEFAULT), 1_000.0)
    peer = proxy.connect()
    assert announced(proxy, peer, produce_for(2_000, 1, client_id=client_id), 1) == 2_000


@pytest.mark.parametrize("client_id", [None, ""])
def test_an_empty_client_id_as_in_kafka(proxy: ProxyFixture, client_id: str | None) -> None:
    """A client without a client-id escapes the default client-id's quota until Kafka's rule for empty client-ids is switched off."""
    proxy.scope.produce.update_quota(ClientQuotaEntity(None, DEFAULT), 1_000.0)
    proxy.settings.empty_client_id_is_default = False
    peer = proxy.connect()
    assert announced(proxy, peer, produce_for(2_000, 1, client_id=client_id), 1) == 0
    proxy.settings.empty_client_id_is_default = True
    peer.connection.settings_changed()
    assert announced(proxy, peer, produce_for(2_000, 2, client_id=client_id), 2) == 2_000


def test_a_client_that_is_called_default(proxy: ProxyFixture) -> None:
    """A client whose client-id is literally `<default>` is throttled by no more than the default client-id's quota."""
    proxy.scope.produce.update_quota(ClientQuotaEntity(None, DEFAULT), 1_000.0)
    peer = proxy.connect()
    assert announced(proxy, peer, produce_of(9_000, 1, client_id=DEFAULT), 1) == 0


def test_coordinator_traffic_is_never_muted(proxy: ProxyFixture) -> None:
    """Heartbeats, commits and joins on their own connection pass while the byte quota of their group is far exceeded."""
    busy, coordinator = proxy.connect(), proxy.connect()
    busy.sends(produce_for(500_000, 1))
    busy.answers(produced(1, version=PRODUCE_VERSION))
    for number, key in enumerate((8, 9, 11, 12, 13, 14, 68)):
        assert coordinator.sends(plain(number, key)) == [number]
        assert coordinator.answers(b"\0\0\0\x05" + number.to_bytes(4, "big") + b"\0") == [number]
    assert coordinator.client.reading
