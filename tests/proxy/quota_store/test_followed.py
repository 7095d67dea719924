"""The followed quota store: another store replaces it completely or not at all."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.base.clock import now_ms, wall_time_s
from proxy.config.problem import ConfigProblems
from proxy.quota_store import followed as module
from proxy.quota_store.file.store import FileStore
from proxy.quota_store.followed import INLINE_ENTITIES_MAX, FollowedQuotas
from proxy.quota_store.in_force import QuotaTable
from proxy.quota_store.memory import MemoryStore
from proxy.quota_store.store import EMPTY, OnContent, Origin, QuotaStore, StoreContent, StoreUnavailable, changed
from quota.admin.kraft import Change
from quota.admin.messages import entity_key
from quota.entity import ClientQuotaEntity, ClientQuotaType

ALICE = entity_key([("user", "alice")])
OF_ALICE = ClientQuotaEntity("alice")
PRODUCE = "producer_byte_rate"


class ProxyFixture:
    """Followed quotas and what they have put in force."""

    def __init__(self) -> None:
        self.table: QuotaTable = {}
        self.rates: Mapping[str, int] = {}
        self.reported: list[tuple[Origin, StoreContent]] = []
        self.quotas = FollowedQuotas(self._take_table, self._take_rates)
        self.quotas.listeners.append(lambda content, origin: self.reported.append((origin, content)))

    def _take_table(self, table: QuotaTable) -> None:
        self.table = table

    def _take_rates(self, rates: Mapping[str, int]) -> None:
        self.rates = rates

    @property
    def produce(self) -> dict[ClientQuotaEntity, float]:
        return dict(self.table[ClientQuotaType.PRODUCE])


def memory(on_content: OnContent) -> QuotaStore:
    return MemoryStore(on_content, now_ms=now_ms, wall_time_s=wall_time_s)


class Silent(MemoryStore):
    """A store that never answers."""

    def __init__(self, on_content: OnContent) -> None:
        super().__init__(on_content, now_ms=now_ms, wall_time_s=wall_time_s)
        self.closed = False

    async def start(self) -> None:
        await self.follow_forever()

    async def close(self) -> None:
        self.closed = True


async def test_nothing_is_altered_before_quotas_are_read() -> None:
    """Before the quotas are read an alteration is refused."""
    proxy = ProxyFixture()
    assert proxy.quotas.status.error == "quotas are not read yet"
    with pytest.raises(StoreUnavailable, match="not read yet"):
        await proxy.quotas.alter(lambda _: (None, []))


async def test_another_store_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    """Another store's content is in force when `use` returns, and the former content is gone."""
    proxy = ProxyFixture()
    await proxy.quotas.use(memory)
    await proxy.quotas.alter(lambda _: (None, [Change(ALICE, PRODUCE, 5.0)]))
    assert proxy.produce == {OF_ALICE: 5.0}
    path = tmp_path / "quotas.toml"
    path.write_text('[[quota]]\nip = "10.0.0.1"\nconnection_creation_rate = 3\n')
    await proxy.quotas.use(lambda on_content: FileStore(path, on_content, now_ms=now_ms, wall_time_s=wall_time_s))
    assert (proxy.produce, proxy.rates) == ({}, {"10.0.0.1": 3})
    assert [origin for origin, _ in proxy.reported] == ["start", "own", "start"]
    assert proxy.quotas.status.source == f"file:{path}"
    await proxy.quotas.close()


async def test_a_store_that_cannot_be_used_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is invalid or silent is refused, and the former one stays in use."""
    proxy = ProxyFixture()
    await proxy.quotas.use(memory)
    await proxy.quotas.alter(lambda _: (None, [Change(ALICE, PRODUCE, 5.0)]))
    path = tmp_path / "nowhere.toml"
    with pytest.raises(ConfigProblems, match="cannot be read"):
        await proxy.quotas.use(lambda on_content: FileStore(path, on_content, now_ms=now_ms, wall_time_s=wall_time_s))
    made: list[Silent] = []

    def silent(on_content: OnContent) -> QuotaStore:
        made.append(Silent(on_content))
        return made[0]

    monkeypatch.setattr(
        module, "OTHER_S", 0.01
    )  # for the silent store only: a file is read in a thread, which may take longer on a busy machine
    with pytest.raises(ConfigProblems, match=r"quotas.store: .*; reload again"):
        await proxy.quotas.use(silent)
    assert made[0].closed
    assert proxy.produce == {OF_ALICE: 5.0}
    await proxy.quotas.alter(lambda _: (None, [Change(ALICE, PRODUCE, 6.0)]))
    assert proxy.produce == {OF_ALICE: 6.0}
    await proxy.quotas.close()


async def test_a_bound_of_zero_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A bound of zero or below is replaced, counted, and logged once."""
    proxy = ProxyFixture()
    await proxy.quotas.use(memory)
    for value in (5.0, 0.0, -1.0):
        await proxy.quotas.alter(lambda _, value=value: (None, [Change(ALICE, PRODUCE, value)]))  # type: ignore[misc]
    assert proxy.produce == {OF_ALICE: 5.0}
    assert proxy.quotas.status.replaced == 1
    assert [record.getMessage() for record in caplog.records] == ["quota_not_enforced_as_kept"]
    await proxy.quotas.close()


MANY = [Change(entity_key([("user", f"u{number}")]), PRODUCE, 1.0) for number in range(INLINE_ENTITIES_MAX + 1)]


async def test_many_quotas_are_put_in_force_as_one() -> None:
    """A change of many quotas is put in force at once, and before the request returns."""
    proxy = ProxyFixture()
    await proxy.quotas.use(memory)
    await proxy.quotas.alter(lambda _: (None, MANY))
    assert len(proxy.produce) == len(MANY)
    assert proxy.quotas.content is proxy.reported[-1][1]
    changing = asyncio.create_task(proxy.quotas.alter(lambda _: (None, [change._replace(value=2.0) for change in MANY])))
    seen = set()
    while not changing.done():
        seen.add(tuple(sorted(set(proxy.produce.values()))))
        described = {values[PRODUCE] for values in proxy.quotas.content.quotas.values()}
        assert described == set(proxy.produce.values())
        await asyncio.sleep(0)
    assert set(proxy.produce.values()) == {2.0}
    assert seen <= {(1.0,), (2.0,)}
    assert (1.0,) in seen
    await proxy.quotas.close()


async def test_contents_come_into_force_in_their_order() -> None:
    """Contents of this process are applied in order, and of waiting contents of others only the newest."""
    proxy = ProxyFixture()
    arrive: list[OnContent] = []

    class Elsewhere(MemoryStore):
        def __init__(self, on_content: OnContent) -> None:
            super().__init__(on_content, now_ms=now_ms, wall_time_s=wall_time_s)
            arrive.append(on_content)

    await proxy.quotas.use(Elsewhere)
    many = changed(EMPTY, MANY)
    contents = [changed(many, [Change(ALICE, PRODUCE, float(number))]) for number in range(1, 5)]
    for origin, content in zip(("own", "outside", "outside", "own"), contents, strict=True):
        arrive[0](content, origin)  # type: ignore[arg-type]
    arrive[0](EMPTY, "outside")
    await proxy.quotas.reload()
    assert proxy.reported[1:] == [("own", contents[0]), ("outside", contents[2]), ("own", contents[3]), ("outside", EMPTY)]
    assert proxy.produce == {}
    await proxy.quotas.close()
