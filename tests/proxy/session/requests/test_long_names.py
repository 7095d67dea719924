"""Client-ids of any length: their quotas apply, and little of them is stored."""

import gc
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

from proxy.enforcement.groups.child_groups import enforced_group
from quota.callbacks.callback import ClientQuotaCallback, DefaultQuotaCallback
from quota.callbacks.guarded_callback import GuardedCallback
from quota.entity import ANONYMOUS, DEFAULT, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal, desanitize
from quota.manager import ClientQuotaManager
from quota.names import NAME_BYTES_MAX, kept_name, read_kept_name
from quota.request_time import ClientRequestQuotaManager
from tests.support.faulty_callback import raising
from tests.support.frames.kafka_frames import api_of, produce, produced, request
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.metered_fixture import MeteredFixture

MARK = "mark-of-a-long-name"
LONG = "x" * 200 + MARK * 1_000
KEPT_BYTES_MAX = 1_024
EVERY_CLIENT = ClientQuotaEntity(None, DEFAULT)


def kept_texts(*roots: object) -> Iterator[bytes]:
    """Yield every text and bytes object that `roots` refer to, as bytes."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType | BuiltinFunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, bytes | bytearray | str):
            yield one.encode("utf-8", "surrogatepass") if isinstance(one, str) else bytes(one)
        waiting += gc.get_referents(one)


def largest_kept(*roots: object) -> int:
    """Return the size of the longest stored object that contains the long name's marker."""
    return max((len(text) for text in kept_texts(*roots) if MARK.encode() in text), default=0)


def produces(peer: Peer, number: int, client_id: str, size: int = 100) -> None:
    """Send a Produce and its response."""
    peer.asks(produce(number, size=size, client_id=client_id), produced(number))


def test_nothing_of_a_long_client_id_outlives_its_request(proxy: ProxyFixture) -> None:
    """Only a shortened form of a long client-id is stored, also while a request is in flight."""
    for manager in (proxy.scope.produce, proxy.scope.fetch, proxy.scope.request):
        manager.update_quota(EVERY_CLIENT, 1e9)
    peer = proxy.connect()
    for number in range(1, 20):
        produces(peer, number, LONG + str(number))
    peer.sends(produce(20, client_id=LONG + "20"))
    assert 0 < largest_kept(proxy, peer) <= KEPT_BYTES_MAX
    assert len(proxy.usages) == len(proxy.scope.produce.groups()) == 20


def test_no_head_above_256_bytes_is_remembered(proxy: ProxyFixture) -> None:
    """No cache stores a header above 256 bytes."""
    peer = proxy.connect()
    for version in range(3, 10):
        produces(peer, version, "x" * 60)
        frame = produce(100 + version, version=version, client_id=LONG)
        peer.asks(frame, produced(100 + version, version=version))
        session = peer.connection.session
        assert largest_kept(session, proxy.settings.known_heads, proxy.settings.heads_met) <= KEPT_BYTES_MAX
    assert len(proxy.settings.known_heads) > 0


def test_two_long_names_that_begin_alike_are_two_clients(proxy: ProxyFixture) -> None:
    """Two long client-ids with the same beginning, and one equal to a short form, have groups and usage of their own."""
    proxy.scope.produce.update_quota(EVERY_CLIENT, 1e9)
    peer = proxy.connect()
    names = [LONG + "1", LONG + "2", "".join(kept_name(LONG + "1"))]
    for number, name in enumerate(names, 1):
        produces(peer, number, name, size=100 * number)
    groups = list(proxy.scope.produce.groups())
    assert len(groups) == len({group.key for group in groups}) == 3
    assert all(group.recorded_total > 0 for group in groups)
    assert len({usage.own_produce_bytes for usage in proxy.usages.snapshot()[:-1]}) == 3


@pytest.mark.parametrize("length", [NAME_BYTES_MAX, NAME_BYTES_MAX + 1, 300, 32_000])
def test_a_quota_for_a_long_client_id_holds(proxy: ProxyFixture, length: int) -> None:
    """A quota for a long client-id applies to that client-id only, and its rule is shown shortened."""
    name = "x" * length
    proxy.scope.produce.update_quota(ClientQuotaEntity(None, name), 1_000.0)
    peer = proxy.connect()
    peer.sends(produce(1, size=20_000, client_id=name[:-1] + "y"))
    assert peer.answers(produced(1)) == [1]
    peer.sends(produce(2, size=20_000, client_id=name))
    assert peer.answers(produced(2)) == []
    proxy.wait(5_000)
    assert peer.delivered() == [2]
    usage = proxy.usages.get(ANONYMOUS.name, name)
    assert usage.throttled_requests == {("Produce", f"client-id={kept_name(name)}"): 1}
    proxy.scope.produce.update_quota(ClientQuotaEntity(None, name), None)
    proxy.wait(60_000)
    peer.sends(produce(3, size=20_000, client_id=name))
    assert peer.answers(produced(3)) == [3]


class Recording(ClientQuotaCallback):
    """A callback that gives each client-id its own budget and records its calls."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tags: list[str] = []
        self.limits: dict[str | None, float] = {}

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        self.names.append(client_id)
        return {"tenant": client_id}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        self.tags.append(metric_tags["tenant"])
        return self.limits.get(metric_tags["tenant"])

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        self.limits[entity.client_id] = new_value


def test_a_custom_callback_gets_the_whole_name(proxy: ProxyFixture) -> None:
    """A custom callback always gets the full client-id."""
    callback = Recording()
    proxy.scope.produce.replace_callback(callback)
    peer = proxy.connect()
    produces(peer, 1, LONG)
    assert set(callback.names) == {LONG}
    assert callback.tags == [LONG]
    proxy.scope.produce.update_quota(ClientQuotaEntity(None, LONG), 1_000.0)
    assert callback.limits[LONG] == 1_000.0
    produces(peer, 2, LONG)
    assert callback.tags == [LONG, LONG]
    (group,) = proxy.scope.produce.groups()
    assert group.bound == 1_000.0
    assert largest_kept(proxy.scope.produce._groups, proxy.settings.known_heads, proxy.usages) <= KEPT_BYTES_MAX


def test_what_is_remembered_for_a_callback_that_fails_is_bounded() -> None:
    """The last valid answers of a failing callback are stored by shortened names and apply to long ones."""
    callback = Recording()
    guarded = GuardedCallback(lambda: callback, now_ns=lambda: 0)
    guarded.configure({})
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group, callback=guarded)
    manager.update_quota(ClientQuotaEntity(None, LONG), 5.0)
    group = manager.group(ANONYMOUS, LONG, 0)
    callback.quota_metric_tags = raising(ValueError("broken"))  # type: ignore[method-assign]
    assert manager.group(ANONYMOUS, LONG, 0) is group
    assert group.bound == 5.0
    remembered = (guarded._tags, guarded._members, guarded._limits, guarded._own_rule, guarded.last_error)
    assert 0 < largest_kept(*remembered) <= KEPT_BYTES_MAX


def test_a_long_name_is_metered_by_what_is_kept_of_it(tmp_path: Path) -> None:
    """Metering has the shortened name in clients, groups and rules, and the validator finds it exact."""
    with MeteredFixture(tmp_path, produce=1e9) as proxy:
        proxy.scope.produce.update_quota(ClientQuotaEntity(None, LONG), 1_000.0)
        peer = proxy.connect()
        peer.sends(produce(1, size=20_000, client_id=LONG))
        proxy.wait(20)
        peer.answers(produced(1))
        verdict = proxy.written()
        assert (verdict.kinds(), verdict.incomplete, verdict.decisions) == ({}, [], 1)
        assert kept_name(LONG) in {row["client_id"] for row in proxy.rows("dim_client")}
        assert kept_name(LONG) in {row["tag_client_id"] for row in proxy.rows("dim_group")}
        assert f"client-id={kept_name(LONG)}" in {row["rule"] for row in proxy.rows("dim_bound")}


def test_names_of_files_are_not_cut_again() -> None:
    """A shortened name that is read from metering has the quota of the full name."""
    callback = DefaultQuotaCallback()
    user = "é" * 300
    callback.update_quota(ClientQuotaType.PRODUCE, ClientQuotaEntity(user, LONG), 5.0)
    tags = callback.quota_metric_tags(ClientQuotaType.PRODUCE, KafkaPrincipal("User", user), LONG)
    names = [read_kept_name("".join(name)) for name in (desanitize(tags["user"]), tags["client-id"])]
    read = callback.quota_metric_tags(ClientQuotaType.PRODUCE, KafkaPrincipal("User", names[0]), names[1])
    assert read == tags
    assert callback.quota_limit(ClientQuotaType.PRODUCE, read) == 5.0


@pytest.mark.parametrize(
    "manager",
    [ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group), ClientRequestQuotaManager(enforced_group)],
    ids=["bytes", "time"],
)
def test_a_quota_for_a_long_user_holds(manager: ClientQuotaManager) -> None:
    """A quota for a long user applies, alone and with a client-id."""
    for user in ("u" * 300, "é" * 130, "\U0001f600" * 200):
        manager.update_quota(ClientQuotaEntity(user, None), 7.0)
        manager.update_quota(ClientQuotaEntity(user, LONG), 5.0)
        principal = KafkaPrincipal("User", user)
        assert manager.group(principal, "web", 0).bound == 7.0
        assert manager.group(principal, LONG, 0).bound == 5.0
        assert manager.rule(manager.group(principal, LONG, 0)) == ClientQuotaEntity(user, LONG)
        assert manager.group(KafkaPrincipal("User", user[:-1] + "z"), LONG, 0).bound > 1e18
    assert largest_kept(manager._groups, manager._made_by, manager._maker_of) <= KEPT_BYTES_MAX


def test_metadata_by_a_long_client_id_passes(proxy: ProxyFixture) -> None:
    """Requests with a long client-id are forwarded and counted each time."""
    peer = proxy.connect()
    for number in range(1, 4):
        frame = request(api_of(3, 1), b"\0\0\0\0", number, LONG)
        assert peer.sends(frame) == [number]
    assert proxy.usages.get(ANONYMOUS.name, LONG).requests[3] == 3
