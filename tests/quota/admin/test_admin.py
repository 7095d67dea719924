"""Quotas are described and altered as in Kafka in cases that the vectors do not cover."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.admin.describe import describe_kraft, describe_zookeeper
from quota.admin.kraft import alter_kraft
from quota.admin.messages import INVALID_REQUEST, Alteration, Component, MatchType, Op, entity_key, shown
from quota.admin.znodes import entity_of, java_double, path_of
from quota.admin.zookeeper import alter_zookeeper
from tests.support.processes.znode_tree import ZnodeTree

ALICE = entity_key([("user", "alice")])
NAMES = st.none() | st.text(min_size=1, max_size=8)
ENTITIES = st.one_of(
    st.dictionaries(st.sampled_from(["user", "client-id"]), NAMES, min_size=1),
    st.dictionaries(st.just("ip"), NAMES, min_size=1),
).map(lambda parts: entity_key(list(parts.items())))


def never(_host: str) -> bool:
    """Return that no host is known."""
    return False


@pytest.mark.parametrize("key", ["producer_byte_rate", "request_percentage"])
def test_nan_is_refused_where_brokers_keep_it(key: str) -> None:
    """A quota of NaN is refused in both profiles, unlike in Kafka."""
    alteration = Alteration(list(ALICE), [Op(key, math.nan, remove=False)])
    results, changes = alter_kraft([alteration], {}, never)
    tree = ZnodeTree()
    assert results == alter_zookeeper([alteration], tree, never, validate_only=False)
    assert (results[0].error_code, results[0].error_message) == (INVALID_REQUEST, f"Quota {key} must be greater than 0")
    assert not changes
    assert not tree.with_data()


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e308, -1e308])
def test_values_beyond_a_long_are_refused(value: float) -> None:
    """A quota beyond the range of a long is refused in both profiles."""
    alteration = Alteration(list(ALICE), [Op("producer_byte_rate", value, remove=False)])
    assert alter_kraft([alteration], {}, never)[0][0].error_code == INVALID_REQUEST
    assert alter_zookeeper([alteration], ZnodeTree(), never, validate_only=False)[0].error_code == INVALID_REQUEST


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (12.34, "12.34"),
        (1.0, "1.0"),
        (1e-3, "0.001"),
        (9.99e-4, "9.99E-4"),
        (1e-7, "1.0E-7"),
        (1e7, "1.0E7"),
        (9_999_999.5, "9999999.5"),
        (-12_345_678.5, "-1.23456785E7"),
        (1e23, "1.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    """A double is written as Java writes it."""
    assert java_double(value) == text


@given(st.floats(allow_nan=False))
def test_a_written_double_reads_as_itself(value: float) -> None:
    """A written double reads as the same value."""
    assert float(java_double(value)) == value


@given(ENTITIES)
def test_a_path_leads_back_to_its_entity(entity: tuple[tuple[str, str | None], ...]) -> None:
    """The path of an entity in ZooKeeper leads back to the entity, whatever characters its names have."""
    assert entity_of(path_of(entity)) == entity


@pytest.mark.parametrize("path", ["users", "users/a/b", "users/a/clients", "topics/t", "clients/a/clients/b", "users/%zz", ""])
def test_other_nodes_are_no_entities(path: str) -> None:
    """A path that is not that of a quota has no entity."""
    assert entity_of(path) is None


@given(st.lists(st.tuples(st.sampled_from(["user", "client-id", "ip", "", "x"]), st.integers(-1, 4), NAMES), max_size=4), st.booleans())
def test_a_filter_is_answered_or_refused(components: list[tuple[str, int, str | None]], strict: bool) -> None:
    """A filter is either refused or returns only entities that match every component."""
    stored = {ALICE: {"producer_byte_rate": 1.0}, entity_key([("ip", None)]): {"connection_creation_rate": 5.0, "producer_byte_rate": 2.0}}
    wanted = [Component(*component) for component in components]
    for describe in (describe_kraft, describe_zookeeper):
        found = describe(wanted, stored, strict=strict)
        assert (found.entries is None) == (found.error_code != 0)
        for entity, values in (found.entries or {}).items():
            names = dict(entity)
            assert all(one.entity_type in names for one in wanted)
            assert all(names[one.entity_type] == one.match for one in wanted if one.match_type == MatchType.EXACT)
            assert len(values) == 1  # the key that does not belong to it is not shown


def test_entities_are_shown_as_java_shows_them() -> None:
    """An entity is printed as in Java, with its parts in Java's order and null for a default name."""
    assert shown(entity_key([("user", None), ("client-id", "c")])) == "ClientQuotaEntity(entries={client-id=c, user=null})"
