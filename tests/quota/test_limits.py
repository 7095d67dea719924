"""The quotas of one type are an immutable table from which changed tables are made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.callbacks.callback import DefaultQuotaCallback
from quota.entity import DEFAULT, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.errors import QuotaError
from quota.groups.group import QuotaGroup
from quota.limits import CLIENT_ID_LEVEL, USER_CLIENT_ID_LEVEL, USER_LEVEL, QuotaLimits
from quota.manager import ClientQuotaManager

ALICE, ETL, BOTH = ClientQuotaEntity("alice"), ClientQuotaEntity(None, "etl"), ClientQuotaEntity("alice", "etl")
ENTITIES = [ALICE, ETL, BOTH, ClientQuotaEntity(DEFAULT), ClientQuotaEntity(None, DEFAULT), ClientQuotaEntity(DEFAULT, "etl")]
Changes = dict[ClientQuotaEntity, float | None]
CHAIN = st.lists(st.dictionaries(st.sampled_from(ENTITIES), st.one_of(st.none(), st.sampled_from([1.0, 2.0])), max_size=4), max_size=6)


@given(CHAIN)
def test_a_chain_is_what_its_last_link_is_alone(chain: list[Changes]) -> None:
    """A table after a chain of changes equals one made at once, and earlier tables of the chain stay as they were."""
    links, bounds = [QuotaLimits()], dict[ClientQuotaEntity, float]()
    expected = [dict(bounds)]
    for changes in chain:
        links.append(links[-1].changed(changes))
        bounds = {entity: bound for entity, bound in ({**bounds, **changes}).items() if bound is not None}
        expected.append(bounds)
    for link, should in zip(links, expected, strict=True):
        alone = QuotaLimits.of(should)
        assert (dict(link), link.rules, link.levels) == (should, alone.rules, alone.levels)


@given(CHAIN, CHAIN)
def test_what_is_different_since(chain: list[Changes], other: list[Changes]) -> None:
    """`since` finds exactly the entities whose quota differs from that in another table."""
    before, after = QuotaLimits(), QuotaLimits()
    for changes in chain:
        before, after = after, after.changed(changes)
    for limits in (before, _made(other)):
        different = {entity for entity in ENTITIES if limits.get(entity) != after.get(entity)}
        assert (different, len(after.since(limits))) == (set(after.since(limits)), len(different))


def _made(chain: list[Changes]) -> QuotaLimits:
    limits = QuotaLimits()
    for changes in chain:
        limits = limits.changed(changes)
    return limits


def test_nothing_different_is_the_same_object() -> None:
    """A change that changes nothing returns the same table."""
    limits = QuotaLimits.of({ALICE: 1.0})
    assert limits.changed({ALICE: 1.0, ETL: None}) is limits
    assert QuotaLimits.of(limits) is limits
    assert QuotaLimits.of({ALICE: 1.0, ETL: 2.0, BOTH: 3.0}).levels == CLIENT_ID_LEVEL | USER_LEVEL | USER_CLIENT_ID_LEVEL


def test_an_entity_without_a_name() -> None:
    """A quota for an entity without user and client-id is refused, and the table stays as it was."""
    limits = QuotaLimits.of({ALICE: 1.0})
    with pytest.raises(QuotaError):
        limits.changed({ClientQuotaEntity(): 1.0})
    assert dict(limits) == {ALICE: 1.0}


def test_who_changes_shared_rules_changes_its_own() -> None:
    """A change in one of two callbacks that share a table affects neither the other callback nor the table."""
    limits = QuotaLimits.of({ETL: 1.0})
    one, other = DefaultQuotaCallback(), DefaultQuotaCallback()
    for callback in (one, other):
        callback.replace_quotas(limits)
    one.update_quota(ClientQuotaType.PRODUCE, ETL, 9.0)
    one.remove_quota(ClientQuotaType.PRODUCE, ALICE)
    tags = {"user": "", "client-id": "etl"}
    assert [callback.quota_limit(ClientQuotaType.PRODUCE, tags) for callback in (one, other)] == [9.0, 1.0]
    assert dict(limits) == {ETL: 1.0}


@given(CHAIN)
def test_managers_that_share_limits_are_as_those_that_do_not(chain: list[Changes]) -> None:
    """A manager with a shared table gives every group the same quota as one with a table of its own."""
    shared, own = (ClientQuotaManager(ClientQuotaType.PRODUCE, QuotaGroup) for _ in range(2))
    limits = QuotaLimits()
    for changes in chain:
        limits = limits.changed(changes)
        shared.replace_quotas(limits)
        own.replace_quotas(dict(limits))
        for manager in (shared, own):
            for user in ("alice", "bob", "carol"):
                for client_id in ("etl", "web", "a", "b", "c"):
                    manager.group(KafkaPrincipal("User", user), client_id, 0)
        assert {group.key: group.bound for group in shared.groups()} == {group.key: group.bound for group in own.groups()}
        assert [group.bound for group in shared.groups()] == [shared._limit(group.tags) for group in shared.groups()]
        assert shared.enabled == own.enabled
