"""A client is a member of the first declared group that matches and shares its quota."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.base.networks import networks_of
from proxy.enforcement.groups.child_groups import enforced_group
from quota.entity import ANONYMOUS, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.declared_groups import GROUP_TAG, NO_GROUPS, Conditions, DeclaredGroup, DeclaredGroups, Link, Member
from quota.groups.pattern import Pattern
from quota.manager import ClientQuotaManager

PRODUCE, FETCH, REQUEST = ClientQuotaType.PRODUCE, ClientQuotaType.FETCH, ClientQuotaType.REQUEST


def patterns(*texts: str) -> tuple[Pattern, ...]:
    return tuple(map(Pattern, texts))


EDGE = DeclaredGroups(
    [
        DeclaredGroup("saas", bounds={PRODUCE: 10_000.0, REQUEST: 50.0}),
        DeclaredGroup("acme-batch", Conditions(patterns("acme"), patterns("batch-*")), {PRODUCE: 1_000.0}, "acme"),
        DeclaredGroup("acme", Conditions(patterns("acme", "acme-*")), {PRODUCE: 5_000.0, FETCH: 7_000.0}, "saas"),
        DeclaredGroup("office", Conditions(networks=networks_of(["10.1.0.0/16"]), listeners=frozenset({"inside"})), {FETCH: 300.0}),
        DeclaredGroup("rest", Conditions(client_ids=patterns("*"), listeners=frozenset({"edge"})), parent="saas"),
    ]
)


@pytest.mark.parametrize(
    ("listener", "host", "user", "client_id", "group"),
    [
        ("edge", "192.0.2.7", "acme", "batch-1", "acme-batch"),
        ("edge", "192.0.2.7", "acme-web", "batch-1", "acme"),
        ("edge", "192.0.2.7", "acme", "web", "acme"),
        ("inside", "10.1.2.3", "acme", "web", "acme"),
        ("inside", "10.1.2.3", "bob", "web", "office"),
        ("inside", "::ffff:10.1.2.3", "bob", "web", "office"),
        ("inside", "10.2.2.3", "bob", "web", None),
        ("edge", "10.1.2.3", "bob", "web", "rest"),
        ("edge", "10.1.2.3", "bob", "", "rest"),
        ("other", "10.1.2.3", "bob", "web", None),
    ],
)
def test_the_first_that_matches(listener: str, host: str, user: str, client_id: str, group: str | None) -> None:
    """A client is in the first declared group all of whose conditions hold."""
    assert EDGE.explain(listener, host, user, client_id).group == group


def test_what_a_client_counts_for() -> None:
    """For each quota type a client counts in its group and those of its parents that have a quota of that type."""
    assert EDGE.explain("edge", "192.0.2.7", "acme", "batch-1").chains == {
        PRODUCE: (Link("acme-batch", 1_000.0), Link("acme", 5_000.0), Link("saas", 10_000.0)),
        FETCH: (Link("acme", 7_000.0),),
        REQUEST: (Link("saas", 50.0),),
    }
    assert EDGE.explain("inside", "10.1.0.1", "bob", "web").chains == {FETCH: (Link("office", 300.0),)}
    assert EDGE.explain("other", "192.0.2.7", "bob", "web").chains == {}


def test_connections_that_groups_cannot_tell_apart_are_one_origin() -> None:
    """Connections that no condition distinguishes have the same origin."""
    assert EDGE.origin("edge", "192.0.2.7") == EDGE.origin("edge", "198.51.100.9")
    assert EDGE.origin("inside", "192.0.2.7") != EDGE.origin("inside", "10.1.0.1")
    assert NO_GROUPS.origin("edge", "192.0.2.7").group_of("acme", "x") is None


NAMES = st.sampled_from(["a", "b", "ab", ""])
CONDITIONS = st.builds(
    Conditions,
    st.none() | st.sampled_from([patterns("a*"), patterns("b", "a")]),
    st.none() | st.sampled_from([patterns("*b"), patterns("?")]),
    st.none() | st.sampled_from([networks_of(["10.0.0.0/8"]), networks_of(["10.1.0.0/16", "192.0.2.7"])]),
    st.none() | st.sampled_from([frozenset({"edge"}), frozenset({"edge", "inside"})]),
)


@given(
    st.lists(st.none() | CONDITIONS, max_size=6),
    st.sampled_from(["edge", "inside"]),
    st.sampled_from(["10.1.0.1", "10.2.0.1"]),
    NAMES,
    NAMES,
)
def test_in_two_steps_as_in_one(conditions: list[Conditions | None], listener: str, host: str, user: str, client_id: str) -> None:
    """Matching the connection first and the client later finds the same group as matching everything in order."""
    groups = DeclaredGroups([DeclaredGroup(f"g{at}", one, {PRODUCE: 1.0}) for at, one in enumerate(conditions)])
    expected = next(
        (
            f"g{at}"
            for at, one in enumerate(conditions)
            if one is not None and one.hold_at(listener, host) and one.hold_for(user, client_id)
        ),
        None,
    )
    assert groups.explain(listener, host, user, client_id).group == expected


# --- declared groups in the managers


def member(groups: DeclaredGroups, user: str, client_id: str, listener: str = "edge", host: str = "192.0.2.7") -> Member:
    return Member(KafkaPrincipal("User", user), groups.origin(listener, host).group_of(user, client_id))


def manager_with(groups: DeclaredGroups, quota_type: ClientQuotaType = PRODUCE) -> ClientQuotaManager:
    manager = ClientQuotaManager(quota_type, enforced_group)
    manager.declare(groups)
    return manager


def test_members_share_one_budget() -> None:
    """Members of a group share one quota group, and other clients have that of Kafka's rule."""
    manager = manager_with(EDGE)
    manager.update_quota(ClientQuotaEntity(None, "web"), 99.0)
    one = manager.group(member(EDGE, "acme", "x"), "x", 0)
    assert manager.group(member(EDGE, "acme-2", "y"), "y", 0) is one
    assert (one.tags, one.bound) == ({GROUP_TAG: "acme"}, 5_000.0)
    stranger = manager.group(member(EDGE, "bob", "web", "other"), "web", 0)
    assert (stranger.tags, stranger.bound) == ({"user": "", "client-id": "web"}, 99.0)
    assert manager.group(KafkaPrincipal("User", "bob"), "web", 0) is stranger


def test_a_type_that_the_group_does_not_limit_is_its_parents_or_kafkas() -> None:
    """A member of a group without a quota of this type counts in the nearest parent with one, or else by Kafka's rule."""
    request, fetch = manager_with(EDGE, REQUEST), manager_with(EDGE, FETCH)
    assert request.group(member(EDGE, "acme", "batch-1"), "batch-1", 0).tags == {GROUP_TAG: "saas"}
    assert fetch.group(member(EDGE, "bob", "web"), "web", 0).tags == {"user": "", "client-id": "web"}


def test_a_plain_principal_is_asked_about_by_its_names() -> None:
    """A plain principal is matched by user and client-id only, not by groups with conditions on listeners."""
    manager = manager_with(EDGE)
    assert manager.group(KafkaPrincipal("User", "acme"), "batch-7", 0).tags == {GROUP_TAG: "acme-batch"}
    assert manager.group(KafkaPrincipal("User", "bob"), "web", 0).tags == {"user": "", "client-id": "web"}


def test_parents_are_groups_too() -> None:
    """A record of a member counts in its group and in all parents."""
    manager = manager_with(EDGE)
    batch = manager.group(member(EDGE, "acme", "batch-1"), "batch-1", 0)
    assert batch.parent is manager.group(member(EDGE, "acme", "web"), "web", 0)
    assert batch.parent.parent is manager.group(member(EDGE, "bob", "web"), "web", 0)
    batch.record(500.0, 0)
    assert [group.recorded_total for group in (batch, batch.parent, batch.parent.parent)] == [500.0] * 3


def test_a_change_keeps_what_was_recorded() -> None:
    """Groups of the same name keep their samples under a new quota or parent, and groups no longer declared are removed."""
    manager = manager_with(EDGE)
    who = member(EDGE, "acme", "web")
    acme = manager.group(who, "web", 0)
    acme.record(4_000.0, 0)
    changed = DeclaredGroups([DeclaredGroup("world", bounds={PRODUCE: 50.0}), DeclaredGroup("acme", None, {PRODUCE: 6_000.0}, "world")])
    generation = manager.generation
    manager.declare(changed)
    assert manager.generation > generation
    again = manager.group(who, "web", 0)
    assert (again.bound, again.recorded_total, again.live_samples()) == (6_000.0, 4_000.0, acme.live_samples())
    assert (again.parent.bound, again.parent.recorded_total) == (50.0, 0.0)
    assert {group.tags[GROUP_TAG] for group in manager.groups()} == {"acme", "world"}
    manager.declare(DeclaredGroups([DeclaredGroup("acme", None, {PRODUCE: 6_000.0})]))
    alone = manager.group(who, "web", 0)
    assert (alone.parent, alone.live_samples()) == (None, acme.live_samples())
    manager.declare(NO_GROUPS)
    assert (list(manager.groups()), manager.enabled) == ([], False)
    manager.update_quota(ClientQuotaEntity(None, "web"), 99.0)
    assert manager.group(who, "web", 0).tags == {"user": "", "client-id": "web"}


def test_the_first_declared_bound_begins_recording() -> None:
    """A declared group enables the managers of the quota types that it limits, and no others."""
    assert manager_with(EDGE).enabled
    assert not manager_with(DeclaredGroups([DeclaredGroup("fetchers", None, {FETCH: 1.0})])).enabled


def test_declared_groups_have_room_among_a_crowd() -> None:
    """A declared group is created although clients have filled the table of groups."""
    manager = ClientQuotaManager(PRODUCE, enforced_group, groups_max=2, groups_per_user_max=1)
    manager.declare(EDGE)
    for at in range(5):
        manager.group(ANONYMOUS, f"c{at}", 0).record(1.0, 0)
    assert manager.group(member(EDGE, "acme", "batch-1"), "batch-1", 0).tags == {GROUP_TAG: "acme-batch"}
    assert len(manager.groups()) == 2 + 3
