"""A manager creates, changes and removes groups, and its generation tells when to look a group up again."""

import pytest

from quota.callbacks.callback import DefaultQuotaCallback
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import ANONYMOUS, DEFAULT, UNLIMITED, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.errors import QuotaError
from quota.groups.group import QuotaGroup
from quota.groups.mutation_group import MutationGroup
from quota.maker import Maker, maker_at
from quota.manager import INACTIVE_MS, OVERFLOW, OVERFLOWS_MAX, OVERFLOWS_PER_PLACE_MAX, ClientQuotaManager
from quota.request_time import ClientRequestQuotaManager
from tests.support.quota_calls import record, record_throttle, record_time, record_unchecked
from tests.vectors.managers import RecordingCallback

ALICE = KafkaPrincipal("User", "alice")
BOB = KafkaPrincipal("User", "bob")
ETL = ClientQuotaEntity(client_id="etl")
ANY_CLIENT = ClientQuotaEntity(client_id=DEFAULT)


def new_manager(**settings: object) -> ClientQuotaManager:
    """Return a produce manager."""
    return ClientQuotaManager(ClientQuotaType.PRODUCE, QuotaGroup, **settings)  # type: ignore[arg-type]


def test_without_a_quota_nothing_is_kept() -> None:
    """Without any quota a manager has no groups, and a record returns a throttle time of 0."""
    manager = new_manager()
    assert not manager.enabled
    assert record(manager, ALICE, "etl", 1e12, 0) == 0
    record_unchecked(manager, ALICE, "etl", 1e12, 0)
    record_throttle(manager, ALICE, "etl", 100, 0)
    assert manager.group(ALICE, "etl", 0).record(1e12, 0) == 0
    assert list(manager.groups()) == []


def test_a_removed_quota_leaves_the_manager_enabled() -> None:
    """After the last quota is removed, a manager keeps recording without a limit, as in Kafka."""
    manager = new_manager()
    manager.update_quota(ETL, 10.0)
    assert record(manager, ALICE, "etl", 200, 0) == 10_000
    manager.update_quota(ETL, None)
    assert manager.enabled
    assert record(manager, ALICE, "etl", 200, 0) == 0
    assert [group.bound for group in manager.groups()] == [UNLIMITED]


def test_a_generation_for_each_change() -> None:
    """Every change that may affect a client's group or quota increases the generation, and a record does not."""
    manager = new_manager()
    seen = [manager.generation]

    def moved() -> bool:
        seen.append(manager.generation)
        return seen[-1] > seen[-2]

    manager.update_quota(ETL, 10.0)
    assert moved()
    group = manager.group(ALICE, "etl", 0)
    group.record(1, 0)
    assert not moved()
    manager.replace_quotas({ETL: 10.0})
    assert not moved()
    manager.replace_quotas({ETL: 20.0})
    assert moved()
    manager.update_static_default(5.0)
    assert moved()
    manager.switch(on=False)
    assert moved()
    manager.replace_callback(None)
    assert moved()
    assert manager.expire(INACTIVE_MS) == 0
    assert not moved()
    assert manager.expire(INACTIVE_MS + 1) == 1
    assert moved()


def test_a_table_replaces_another() -> None:
    """A new table removes quotas that are not in it, applies to the next record, and keeps what was recorded."""
    manager = new_manager()
    manager.replace_quotas({ETL: 100.0, ANY_CLIENT: 50.0})
    etl, other = manager.group(ALICE, "etl", 0), manager.group(ALICE, "other", 0)
    assert [etl.record(900, 0), other.record(400, 0)] == [0, 0]
    manager.replace_quotas({ANY_CLIENT: 45.0})
    assert dict(manager.limits) == {ANY_CLIENT: 45.0}
    assert manager.group(ALICE, "etl", 0) is etl
    assert [etl.bound, other.bound] == [45.0, 45.0]
    assert [etl.record(0, 0), other.record(0, 0)] == [10_000, 0]


def test_many_changes_at_once_end_like_one_by_one() -> None:
    """A replaced table gives every group the same quota as single updates."""
    tables = [
        {ETL: 1.0},
        {ETL: 2.0, ClientQuotaEntity("alice"): 3.0},
        {ClientQuotaEntity("alice", "etl"): 4.0, ANY_CLIENT: 5.0},
        {ClientQuotaEntity(DEFAULT, "etl"): 6.0},
        {},
    ]
    at_once, one_by_one = new_manager(), new_manager()
    for table in tables:
        at_once.replace_quotas(table)
        for entity in [*one_by_one.limits]:
            if entity not in table:
                one_by_one.update_quota(entity, None)
        for entity, bound in table.items():
            one_by_one.update_quota(entity, bound)
        for manager in (at_once, one_by_one):
            for client_id in ("etl", "web", ""):
                manager.group(ALICE, client_id, 0)
        assert {group.key: group.bound for group in at_once.groups()} == {group.key: group.bound for group in one_by_one.groups()}


def test_groups_expire_after_an_hour_of_silence() -> None:
    """A group is removed with its samples when more than an hour has passed since its last record."""
    manager = new_manager()
    manager.update_quota(ETL, 10.0)
    group = manager.group(ALICE, "etl", 0)
    group.record(150, 1_000)
    assert manager.expire(1_000 + INACTIVE_MS) == 0
    assert manager.expire(1_001 + INACTIVE_MS) == 1
    assert manager.group(ALICE, "etl", 1_001 + INACTIVE_MS) is not group


def test_throttle_times_expire_on_their_own() -> None:
    """The throttle-time average of a group expires after an hour without a throttle, and the group stays."""
    manager = new_manager()
    manager.update_quota(ETL, 10.0)
    record_throttle(manager, ALICE, "etl", 100, 0)
    group = manager.group(ALICE, "etl", 0)
    assert group.throttle_time is not None
    group.record(1, INACTIVE_MS)
    manager.expire(INACTIVE_MS + 1)
    assert (group.throttle_time, list(manager.groups())) == (None, [group])


def test_switched_off_nothing_is_recorded() -> None:
    """A manager that is switched off returns 0, and after it is switched on again its groups are as before."""
    manager = new_manager()
    manager.update_quota(ETL, 10.0)
    assert record(manager, ALICE, "etl", 200, 0) == 10_000
    manager.switch(on=False)
    assert record(manager, ALICE, "etl", 200, 0) == 0
    manager.switch(on=True)
    assert record(manager, ALICE, "etl", 0, 0) == 10_000


def test_an_infinite_quota_frees_one_client() -> None:
    """A client with an infinite quota is not limited by the default quota."""
    manager = new_manager()
    manager.replace_quotas({ANY_CLIENT: 10.0, ETL: UNLIMITED})
    assert record(manager, ALICE, "etl", 10**12, 0) == 0
    assert record(manager, ALICE, "web", 200, 0) == 10_000


def test_the_static_default() -> None:
    """The static default enables a manager, applies after a change, and is overridden by any quota for an entity."""
    manager = new_manager(static_default=10.0)
    assert manager.enabled
    group = manager.group(ANONYMOUS, "etl", 0)
    assert (group.bound, manager.rule(group)) == (10.0, None)
    manager.update_static_default(20.0)
    assert group.bound == 20.0
    manager.update_quota(ETL, 30.0)
    assert (group.bound, manager.rule(group)) == (30.0, ETL)
    manager.update_quota(ETL, None)
    manager.update_static_default(None)
    assert group.bound == UNLIMITED


def test_another_callback_learns_every_quota() -> None:
    """A callback that replaces another receives all quotas and decides on groups until it is removed."""
    manager = new_manager()
    manager.update_quota(ClientQuotaEntity("team_x"), 10.0)
    callback = RecordingCallback()
    manager.replace_callback(callback)
    assert callback.calls[0][0] == "updateQuota"
    assert (manager.custom_callback, manager.enabled) == (True, True)
    member = KafkaPrincipal("User", "team_y")
    assert manager.group(member, "any", 0).tags == {"group": "team"}
    assert record(manager, member, "any", 200, 0) == 10_000
    manager.replace_callback(None)
    assert (manager.custom_callback, isinstance(manager.callback, DefaultQuotaCallback)) == (False, True)
    assert manager.group(KafkaPrincipal("User", "team_x"), "c", 0).bound == 10.0


def test_clients_cannot_make_groups_without_end() -> None:
    """Beyond the limit of groups, new clients with the same quota share one group until idle groups expire."""
    manager = new_manager(groups_max=3)
    manager.update_quota(ANY_CLIENT, 10.0)
    first = [manager.group(ALICE, f"c{number}", 0) for number in range(3)]
    for group in first:
        group.record(1, 0)
    shared = manager.group(ALICE, "c3", 5_000)
    assert shared is manager.group(ALICE, "c4", 5_000)
    assert (shared.bound, OVERFLOW in shared.tags, manager.groups_overflowed) == (10.0, True, 2)
    assert manager.group(ALICE, "c5", 11_001).tags == {"user": "", "client-id": "c5"}
    assert len(manager.groups()) == 1


def test_a_user_cannot_make_groups_without_end() -> None:
    """A user with many client-ids has a limited number of groups, and one shared group of its own beyond that."""
    manager = new_manager(groups_per_user_max=2)
    manager.update_quota(ANY_CLIENT, 10.0)
    for principal in (ALICE, BOB, ANONYMOUS):
        for number in range(3):
            manager.group(principal, f"{principal.name}-{number}", 0).record(1, 0)
    assert manager.groups_overflowed == 2
    shared, other = manager.group(ALICE, "x", 5_000), manager.group(BOB, "y", 5_000)
    assert (shared.tags, other.tags) == ({OVERFLOW: "10.0", "user": "alice"}, {OVERFLOW: "10.0", "user": "bob"})
    assert manager.group(ALICE, "alice-1", 5_000).tags == {"user": "", "client-id": "alice-1"}
    assert manager.group(ANONYMOUS, "z", 5_000).tags == {"user": "", "client-id": "z"}
    assert manager.group(ALICE, "x", 16_001).tags == {"user": "", "client-id": "x"}


HERE, THERE = maker_at("edge", "192.0.2.1"), maker_at("edge", "192.0.2.2")


def names(manager: ClientQuotaManager, maker: Maker, count: int, principal: KafkaPrincipal = ANONYMOUS) -> list[QuotaGroup]:
    """Return the groups of a client under this many client-ids, each with one record."""
    groups = [manager.group(principal, f"{maker}-{principal.name}-{number}", 0, maker) for number in range(count)]
    for group in groups:
        group.record(1, 0)
    return groups


def test_unknown_clients_of_one_address_have_a_users_share() -> None:
    """Anonymous clients of one address beyond the limit share one group, which clients of other addresses do not use."""
    manager = new_manager(groups_per_user_max=3)
    manager.update_quota(ANY_CLIENT, 10.0)
    *_, one, other = names(manager, HERE, 5)
    assert one is other
    assert (one.bound, one.tags) == (10.0, {OVERFLOW: "10.0", "listener": "edge", "address": "192.0.2.1"})
    assert manager.group(ANONYMOUS, "etl", 0, THERE).tags == {"user": "", "client-id": "etl"}
    assert manager.group(ANONYMOUS, "etl", 0, HERE).tags == {"user": "", "client-id": "etl"}, "it was made by another client"
    assert manager.group(ANONYMOUS, "x", 0, maker_at("inside", "192.0.2.1")).tags == {"user": "", "client-id": "x"}


def test_what_a_maker_left_alone_makes_room_for_itself_only() -> None:
    """Idle groups of an address are removed for its new clients, at most once per window, and those of others stay."""
    manager = new_manager(groups_per_user_max=2)
    manager.update_quota(ANY_CLIENT, 10.0)
    others = names(manager, THERE, 2)
    names(manager, HERE, 2)
    assert OVERFLOW in manager.group(ANONYMOUS, "x", 11_000, HERE).tags
    assert OVERFLOW in manager.group(ANONYMOUS, "x", 11_500, HERE).tags
    assert manager.group(ANONYMOUS, "x", 12_000, HERE).tags == {"user": "", "client-id": "x"}
    assert all(group in manager.groups() for group in others)


def test_a_full_table_leaves_a_newcomer_its_own_limit() -> None:
    """In a full table a new user has a group that it shares with no other user."""
    manager = new_manager(groups_max=20, groups_per_user_max=5)
    manager.update_quota(ANY_CLIENT, 10.0)
    for number in range(6):
        names(manager, HERE.of_user(f"u{number}"), 5, principal=KafkaPrincipal("User", f"u{number}"))
    assert len(manager.groups()) == 20
    for_bob, for_carol = manager.group(BOB, "b", 0, HERE.of_user("bob")), manager.group(ALICE, "c", 0, HERE.of_user("carol"))
    assert for_bob is manager.group(BOB, "b2", 0, THERE.of_user("bob"))
    assert (for_bob.recorded_total, for_carol.recorded_total, for_bob.bound) == (0, 0, 10.0)
    assert for_bob is not for_carol


def test_names_of_one_address_take_no_more_than_their_part_of_the_shared_groups() -> None:
    """Many users from one address have a limited number of shared groups, and one group beyond that."""
    manager = new_manager(groups_max=0)
    manager.update_quota(ANY_CLIENT, 10.0)
    shared = {id(manager.group(ALICE, "x", 0, HERE.of_user(f"u{number}"))) for number in range(3 * OVERFLOWS_PER_PLACE_MAX)}
    assert len(shared) == OVERFLOWS_PER_PLACE_MAX + 1
    assert manager.group(ALICE, "x", 0, THERE.of_user("bob")).tags == {OVERFLOW: "10.0", "user": "bob"}


def test_shared_groups_have_a_bound_and_idle_ones_make_room() -> None:
    """Beyond the limit of shared groups all clients use one group, and idle shared groups make room."""
    manager = new_manager(groups_max=0)
    manager.update_quota(ANY_CLIENT, 10.0)
    made = [manager.group(ANONYMOUS, "x", 0, maker_at("edge", f"2001:db8:{number:x}::1")) for number in range(OVERFLOWS_MAX + 5)]
    for group in made:
        group.record(1, 0)
    assert len({id(group) for group in made}) == OVERFLOWS_MAX + 1
    assert made[-1] is made[-2]
    assert made[-1].tags == {OVERFLOW: "10.0"}
    generation = manager.generation
    assert "address" in manager.group(ANONYMOUS, "x", 11_001, HERE).tags
    assert manager.generation > generation, "who remembers a group that is forgotten has to ask again"


def test_a_bucket_in_debt_is_not_forgotten_for_want_of_room() -> None:
    """A token bucket below its capacity is not removed to make room for a new one."""
    manager = ControllerMutationQuotaManager(MutationGroup, starts_full=True)
    manager.groups_per_user_max = 1
    manager.update_quota(ANY_CLIENT, 1.0)
    deep = manager.group(ANONYMOUS, "deep", 0, HERE)
    deep.record(100, 0)
    for now_ms in (12_000, 60_000, 99_999):
        assert OVERFLOW in manager.group(ANONYMOUS, "x", now_ms, HERE).tags
        assert manager.group(ANONYMOUS, "deep", now_ms, HERE) is deep
    assert manager.group(ANONYMOUS, "x", 101_000, HERE).tags == {"user": "", "client-id": "x"}


def test_a_manager_may_cap_what_kafka_wraps() -> None:
    """A throttle time beyond 32 bits wraps as in Kafka, and is 2^31 - 1 ms in a manager with that cap."""
    kafkas, capped = new_manager(), new_manager(cap_ms=2**31 - 1)
    for manager in (kafkas, capped):
        manager.update_quota(ETL, 1.0)
    assert record(kafkas, ALICE, "etl", 40_000_000, 0) == 1_345_284_336
    assert record(capped, ALICE, "etl", 40_000_000, 0) == 2**31 - 1


def test_an_entity_without_parts_is_refused() -> None:
    """A quota for an entity without user and client-id is refused."""
    with pytest.raises(QuotaError):
        new_manager().update_quota(ClientQuotaEntity(), 1.0)


def test_request_time_is_percent_of_a_thread() -> None:
    """With 1 % of a thread, 4 ms of work per second is free, and a burst is throttled for one window at most."""
    manager = ClientRequestQuotaManager(QuotaGroup)
    manager.update_quota(ANY_CLIENT, 1.0)
    free = [record_time(manager, ALICE, "etl", 4_000_000, second * 1_000) for second in range(10)]
    assert free == [0] * 10
    assert record_time(manager, ALICE, "etl", 67_100_000, 10_500) == 210
    assert record_time(manager, ALICE, "etl", 5_000_000_000, 10_500) == 1_000
