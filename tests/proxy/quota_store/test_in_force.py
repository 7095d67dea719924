"""The quotas that are enforced for a store's content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.quota_store.in_force import NOTHING, in_force
from proxy.quota_store.store import EMPTY, StoreContent, SwitchChange, changed, different_entities
from quota.admin.kraft import Change
from quota.admin.messages import EntityKey, entity_key
from quota.entity import DEFAULT, UNLIMITED, ClientQuotaEntity, ClientQuotaType

PRODUCE, PERCENT, CONNECTIONS = "producer_byte_rate", "request_percentage", "connection_creation_rate"
ALICE = entity_key([("user", "alice")])
OF_ALICE = ClientQuotaEntity("alice")


def content(*changes: tuple[EntityKey, str, float]) -> StoreContent:
    return changed(EMPTY, [Change(*change) for change in changes])


def test_entities_of_every_kind() -> None:
    """Default entities, names that look like the default, and addresses are mapped to quota entities."""
    held = in_force(
        content(
            (entity_key([("user", None), ("client-id", "<default>")]), PRODUCE, 1.0),
            (entity_key([("client-id", None)]), PRODUCE, 2.0),
            ((("ip", None),), CONNECTIONS, 20.0),
            ((("ip", "0:0::1"),), CONNECTIONS, 1e300),
        )
    )
    assert held.table[ClientQuotaType.PRODUCE] == {
        ClientQuotaEntity(DEFAULT, DEFAULT, literal_client_id=True): 1.0,
        ClientQuotaEntity(None, DEFAULT): 2.0,
    }
    assert held.connection_rates == {DEFAULT: 20, "::1": 2**31 - 1}


@pytest.mark.parametrize("low", [0.0, -0.0, -5.0])
def test_a_bound_of_zero_or_below_is_never_enforced_as_written(low: float) -> None:
    """In place of a bound of zero or below the last valid bound applies, or one unit per second."""
    good = in_force(content((ALICE, PERCENT, 50.0)))
    for _ in range(2):
        bad = in_force(content((ALICE, PERCENT, low), (ALICE, PRODUCE, low)), good)
        assert bad.table[ClientQuotaType.REQUEST] == {OF_ALICE: 50.0}
        assert bad.table[ClientQuotaType.PRODUCE] == {OF_ALICE: 1.0}
        assert bad.replaced == {(ALICE, PERCENT): 50.0, (ALICE, PRODUCE): 1.0}
        good = in_force(bad.content._replace(quotas={**bad.content.quotas, entity_key([("user", "bob")]): {PRODUCE: 1.0}}), bad)
    mended = in_force(content((ALICE, PERCENT, 7.0)), bad)
    assert (mended.table[ClientQuotaType.REQUEST], mended.replaced) == ({OF_ALICE: 7.0}, {})


def test_an_address_may_have_none() -> None:
    """A connection rate of 0 is enforced, and one below 0 is replaced."""
    held = in_force(content(((("ip", "10.0.0.1"),), CONNECTIONS, 0.0), ((("ip", "10.0.0.2"),), CONNECTIONS, -1.0)))
    assert held.connection_rates == {"10.0.0.1": 0, "10.0.0.2": 1}


def test_an_infinite_value_limits_no_client() -> None:
    """An infinite value becomes Kafka's unlimited bound."""
    assert in_force(content((ALICE, PERCENT, float("inf")))).table[ClientQuotaType.REQUEST] == {OF_ALICE: UNLIMITED}


ENTITIES = st.sampled_from([ALICE, entity_key([("user", None)]), entity_key([("user", "alice"), ("client-id", "etl")]), (("ip", "::1"),)])


def _change(entity: EntityKey) -> st.SearchStrategy[Change]:
    key = CONNECTIONS if entity[0][0] == "ip" else PRODUCE
    return st.builds(Change, st.just(entity), st.just(key), st.one_of(st.none(), st.integers(1, 100).map(float)))


@given(st.lists(st.lists(ENTITIES.flatmap(_change), max_size=4), max_size=6))
def test_step_by_step_is_as_all_at_once(batches: list[list[Change]]) -> None:
    """What is in force depends only on the content, not on the steps to it."""
    kept, held = EMPTY, NOTHING
    for batch in batches:
        kept = changed(kept, batch)
        held = in_force(kept, held)
    assert held == in_force(kept)


@given(st.lists(ENTITIES.flatmap(_change), max_size=4), st.lists(ENTITIES.flatmap(_change), max_size=4))
def test_the_entities_that_are_different(one: list[Change], two: list[Change]) -> None:
    """The entities that differ are exactly those whose values differ."""
    before, after = changed(EMPTY, one).quotas, changed(EMPTY, two).quotas
    expected = {entity for entity in {*before, *after} if before.get(entity) != after.get(entity)}
    assert sorted(different_entities(before, after), key=str) == sorted(expected, key=str)


def test_types_without_a_change_keep_their_very_limits() -> None:
    """Quota types without a change keep the same objects."""
    first = in_force(content((ALICE, PRODUCE, 1.0), (ALICE, PERCENT, 5.0)))
    second = in_force(content((ALICE, PRODUCE, 2.0), (ALICE, PERCENT, 5.0)), first)
    assert second.table[ClientQuotaType.REQUEST] is first.table[ClientQuotaType.REQUEST]
    assert second.connection_rates is first.connection_rates
    same = in_force(content((ALICE, PRODUCE, 2.0), (ALICE, PERCENT, 5.0)), second)
    assert same.table is second.table


def test_changes_share_what_stayed_the_same() -> None:
    """A change without effect returns the same object, and an entity without values is removed."""
    one = content((ALICE, PRODUCE, 1.0))
    assert changed(one, [Change(ALICE, PRODUCE, 1.0), SwitchChange("all", None)]) is one
    assert changed(one, [Change(ALICE, PRODUCE, 2.0), Change(ALICE, PRODUCE, None)]).quotas == {}
    switched = changed(one, [SwitchChange("all", "off")])
    assert switched.quotas is one.quotas
    assert switched.switches == {"all": "off"}
