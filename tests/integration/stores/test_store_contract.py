"""The contract that every kind of quota store fulfils."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from proxy.quota_store.store import StoreChange, StoreContent, SwitchChange
from quota.admin.kraft import Change
from quota.admin.messages import EntityKey, entity_key
from tests.support.processes.stores import (
    Opened,
    Place,
    file_place,
    memory_place,
    new_chroot,
    opened_place,
    topic_place,
    zookeeper_place,
)

PRODUCE, FETCH, PERCENT, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
ALICE = entity_key([("user", "alice")])
NAMES = [
    "alice",
    "<default>",
    "a/clients/b",
    "a+b",
    "%20",
    "~",
    "CN=Writer,OU=x,O=Ü",
    'quote " back \\ slash',
    "tab\tline\n",
    "€ 😀",
    "[[quota]]",
]
KINDS = ["memory", "file", pytest.param("zookeeper", marks=pytest.mark.kafka), pytest.param("topic", marks=pytest.mark.kafka)]
SHARED = KINDS[1:]
_numbers = itertools.count()


@pytest.fixture
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Return an empty place of the kind under test."""
    match request.param:
        case "memory":
            place = memory_place()
        case "file":
            place = file_place(tmp_path)
        case "topic":
            place = topic_place(request.getfixturevalue("kraft").bootstrap, f"sluice-quotas-{next(_numbers)}")
        case _:
            place = zookeeper_place(new_chroot(request.getfixturevalue("zookeeper"), f"contract-{next(_numbers)}"))
    async with opened_place(place):
        yield place


every = pytest.mark.parametrize("place", KINDS, indirect=True)
every_shared = pytest.mark.parametrize("place", SHARED, indirect=True)


def entities() -> list[EntityKey]:
    """Return entities of every kind, with every name that is hard to encode."""
    parts: list[list[tuple[str, str | None]]] = [[("user", name)] for name in (None, *NAMES)]
    parts += [[("client-id", name)] for name in (None, *NAMES)]
    parts += [[("user", None), ("client-id", None)], [("user", "alice"), ("client-id", None)], [("user", None), ("client-id", "etl")]]
    parts += [[("user", name), ("client-id", name)] for name in NAMES]
    return [entity_key(some) for some in parts]


@every
async def test_what_is_altered_is_in_force_when_it_returns(place: Place) -> None:
    """`alter` returns when the values are set, replaced or removed, an entity without values disappears, and the listener is called once
    per change.
    """
    opened = await place.open()
    assert opened.reported == [("start", StoreContent({}, {}))]
    await opened.alter(Change(ALICE, PRODUCE, 1024.0), Change(ALICE, PERCENT, 12.34))
    assert opened.content.quotas == {ALICE: {PRODUCE: 1024.0, PERCENT: 12.34}}
    await opened.alter(Change(ALICE, PRODUCE, 2048.0), Change(ALICE, PERCENT, None), Change(ALICE, FETCH, 7.0))
    assert opened.content.quotas == {ALICE: {PRODUCE: 2048.0, FETCH: 7.0}}
    await opened.alter(Change(ALICE, PRODUCE, None), Change(ALICE, FETCH, None))
    assert opened.content.quotas == {}
    assert [origin for origin, _ in opened.reported] == ["start", "own", "own", "own"]
    assert opened.reported[-1][1] is opened.content
    assert opened.store.status.error is None
    assert await opened.store.reload()


@every
async def test_every_entity_and_name_is_kept(place: Place) -> None:
    """Every kind of entity and every name is stored unchanged, and addresses in their usual form."""
    opened = await place.open()
    changes = [Change(entity, PRODUCE, float(number)) for number, entity in enumerate(entities(), 1)]
    changes += [Change((("ip", ip),), "connection_creation_rate", 20.0) for ip in (None, "10.0.0.1", "::1")]
    await opened.alter(*changes)
    expected = {change.entity: {change.key: change.value} for change in changes}
    assert opened.content.quotas == expected
    if place.is_shared:
        assert (await place.open()).content.quotas == expected
    await opened.alter(*(change._replace(value=None) for change in changes))
    assert opened.content.quotas == {}
    if place.is_shared:
        assert (await place.open()).content.quotas == {}


@every
async def test_numbers_are_kept_to_the_last_bit(place: Place) -> None:
    """The largest and smallest values of integers and doubles are stored to the last bit."""
    opened = await place.open()
    whole = [1.0, 2.0**53 - 1, 2.0**53 + 2, 2.0**63 - 1024]
    double = [0.1, 1e-7, 1e7, 12.34, 1.7976931348623157e308, 5e-324]
    changes = [Change(entity_key([("user", f"w{at}")]), PRODUCE, value) for at, value in enumerate(whole)]
    changes += [Change(entity_key([("user", f"d{at}")]), MUTATIONS, value) for at, value in enumerate(double)]
    await opened.alter(*changes)
    expected = {change.entity: {change.key: change.value} for change in changes}
    assert opened.content.quotas == expected
    if place.is_shared:
        assert (await place.open()).content.quotas == expected


@every
async def test_pacings_are_kept_beside_the_switches(place: Place) -> None:
    """Pacings are set, changed and removed, together with switches of the same target or alone."""
    opened = await place.open()
    await opened.alter(SwitchChange("all", "observe"), SwitchChange("all", "paced", "pacing"), SwitchChange("group:a", "window", "pacing"))
    assert (opened.content.switches, opened.content.pacing) == ({"all": "observe"}, {"all": "paced", "group:a": "window"})
    await opened.alter(SwitchChange("all", None, "pacing"), SwitchChange("group:a", "paced", "pacing"))
    assert opened.content == StoreContent({}, {"all": "observe"}, {"group:a": "paced"})
    if place.is_shared:
        assert (await place.open()).content == opened.content


@every
async def test_switches_are_kept_like_quotas(place: Place) -> None:
    """Switches are set, changed and removed, together with quotas or alone."""
    opened = await place.open()
    await opened.alter(SwitchChange("all", "observe"), Change(ALICE, PRODUCE, 1.0), SwitchChange("entity:user=alice", "off"))
    assert opened.content.switches == {"all": "observe", "entity:user=alice": "off"}
    await opened.alter(SwitchChange("all", None), SwitchChange("entity:user=alice", "enforce"))
    assert opened.content == StoreContent({ALICE: {PRODUCE: 1.0}}, {"entity:user=alice": "enforce"})
    if place.is_shared:
        assert (await place.open()).content == opened.content


@every
async def test_nothing_to_change_changes_nothing(place: Place) -> None:
    """A decision without a change returns its result and notifies no listener, and an error of the decision is raised."""
    opened = await place.open()
    await opened.alter(Change(ALICE, PRODUCE, 1.0))
    before = opened.content
    assert await opened.store.alter(lambda content: (content.quotas[ALICE][PRODUCE], [])) == 1.0
    await opened.alter(Change(entity_key([("user", "nobody")]), PRODUCE, None))

    def wrong(_: StoreContent) -> tuple[None, Sequence[StoreChange]]:
        raise LookupError("of ours")

    with pytest.raises(LookupError, match="of ours"):
        await opened.store.alter(wrong)
    assert opened.content == before
    assert len(opened.reported) == 2
    await opened.alter(Change(ALICE, PRODUCE, 2.0))
    assert opened.content.quotas[ALICE][PRODUCE] == 2.0


@every
async def test_a_cancelled_change_is_made_whole_or_not_at_all(place: Place) -> None:
    """A change whose caller is cancelled is made as a whole or not at all, and the store continues to work."""
    opened = await place.open()
    asking = asyncio.ensure_future(opened.alter(Change(ALICE, PRODUCE, 1.0), Change(ALICE, FETCH, 1.0)))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await opened.alter(Change(ALICE, PERCENT, 1.0))
    assert len(opened.content.quotas[ALICE]) in (1, 3)


@every_shared
async def test_a_change_is_in_force_everywhere(place: Place) -> None:
    """A change of quotas or switches in one store takes effect in the other, which reports it with the origin `outside`."""
    one, other = await place.open(), await place.open()
    await one.alter(Change(ALICE, PRODUCE, 1.0), SwitchChange("all", "off"))
    await other.until(lambda content: content == one.content)
    await other.alter(Change(ALICE, PRODUCE, 2.0), SwitchChange("all", None))
    await one.until(lambda content: content == other.content)
    assert one.content == StoreContent({ALICE: {PRODUCE: 2.0}}, {})
    assert [origin for origin, _ in one.reported] == ["start", "own", "outside"]
    assert [origin for origin, _ in other.reported] == ["start", "outside", "own"]


@every_shared
async def test_b11_two_writers_lose_no_update(place: Place) -> None:
    """When two stores increment one value at the same time, no increment is lost."""
    steps = 30
    one, other = await place.open(), await place.open()
    await one.alter(Change(ALICE, PRODUCE, 1.0))

    def one_more(content: StoreContent) -> tuple[None, Sequence[StoreChange]]:
        return None, [Change(ALICE, PRODUCE, content.quotas.get(ALICE, {}).get(PRODUCE, 0.0) + 1.0)]

    async def count(opened: Opened) -> None:
        for _ in range(steps):
            await opened.store.alter(one_more)

    await other.until(lambda content: bool(content.quotas))
    await asyncio.gather(count(one), count(other))
    for opened in (one, other):
        await opened.until(lambda content: content.quotas[ALICE][PRODUCE] == 1.0 + 2 * steps)


@every
async def test_a_thousand_entities_are_altered_at_once(place: Place) -> None:
    """One call alters a thousand entities."""
    opened = await place.open()
    await opened.alter(*(Change(entity_key([("user", f"u{number}")]), PRODUCE, 1.0 + number) for number in range(1_000)))
    assert len(opened.content.quotas) == 1_000
    assert len(opened.reported) == 2
