"""The quota administration service."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.enforcement.pacing import PacingRules
from proxy.quota_admin.audit.audit import AuditUnavailable, Event
from proxy.quota_admin.audit.log import AuditLog
from proxy.quota_admin.authorizer import Authorizer, Rules
from proxy.quota_admin.limits import ENTRIES_MAX
from proxy.quota_admin.requester import Requester
from proxy.quota_admin.service import DENIED_DEFAULT, DENIED_SELF, NOT_CONTROLLER, Administration
from proxy.quota_store.memory import MemoryStore
from proxy.quota_store.store import EMPTY, Decide, Origin, StoreContent, StoreUnavailable, T
from proxy.telemetry.counters import AdministrationCounts
from quota.admin.kraft import Change
from quota.admin.messages import AdminError, Alteration, Component, Op, Result, entity_key

RATE = "producer_byte_rate"
ADMIN = Requester("User:admin", "kafka", "127.0.0.1:5", "default")
ALICE = ADMIN._replace(principal="User:alice")
OWNER = ADMIN._replace(principal="User:owner")
WRITER = Requester("Token:ops", "http", "127.0.0.1:6", "admin", "write")
USER_BOB = entity_key([("user", "bob")])
ALL: list[Component] = []


class LostStore(MemoryStore):
    """A store that fails on request."""

    lost: StoreUnavailable | None = None

    async def alter(self, decide: Decide[T]) -> T:
        if self.lost is not None:
            raise self.lost
        return await super().alter(decide)


class FullDisk(AuditLog):
    """An audit log whose disk has room for `room` more lines."""

    room = 1_000_000

    async def append(self, events: Sequence[Event]) -> int:
        if self.room < len(events):
            raise AuditUnavailable("audit.file: x cannot be written: No space left on device; make room")
        self.room -= len(events)
        return await super().append(events)


class ProxyFixture:
    """An administration with an in-memory store and an in-memory log."""

    def __init__(self, rules: Rules | None = None, profile: Any = "kraft") -> None:
        self.arrived: list[tuple[StoreContent, Origin]] = []
        self.store = LostStore(self._on_content, now_ms=lambda: 0, wall_time_s=lambda: 0.0)
        self.audit = FullDisk(None, wall_time_s=lambda: 1_700_000_000.0)
        rules = rules or Rules("list", frozenset({"User:admin"}), frozenset({"User:owner"}))
        self.counts = AdministrationCounts()
        self.now_ms = 0
        self.administration = Administration(
            self.store, Authorizer(rules), self.audit, self.counts, now_ms=lambda: self.now_ms, profile=profile
        )
        self._on_content(self.store.content, "start")

    def _on_content(self, content: StoreContent, origin: Origin) -> None:
        self.arrived.append((content, origin))
        self.administration.content_arrived(content, origin)

    async def set(self, requester: Requester, user: str | None, value: float = 5.0, *, validate_only: bool = False) -> Result:
        (result,) = await self.administration.alter(requester, [setting(user, value)], validate_only=validate_only)
        return result

    async def lines(self) -> list[dict[str, Any]]:
        lines = [dict(line) for line in await self.audit.history(limit=10_000)]
        assert (await self.audit.verify()).problems == []
        return [{key: value for key, value in line.items() if key not in ("time", "prev")} for line in reversed(lines)]


def setting(user: str | None, value: float = 5.0, key: str = RATE) -> Alteration:
    return Alteration([("user", user)], [Op(key, value, False)])


@pytest.fixture
async def proxy() -> ProxyFixture:
    return ProxyFixture()


async def test_what_is_allowed_is_made_and_written_down(proxy: ProxyFixture) -> None:
    """An allowed change is logged as requested and, with its old value, as done."""
    assert await proxy.set(ADMIN, "bob", 5.0) == Result(USER_BOB)
    assert await proxy.set(WRITER, "bob", 6.0) == Result(USER_BOB)
    assert proxy.store.content.quotas == {USER_BOB: {RATE: 6.0}}
    admin = {"way": "kafka", "principal": "User:admin", "peer": "127.0.0.1:5", "listener": "default"}
    token = {"way": "http", "principal": "Token:ops", "peer": "127.0.0.1:6", "listener": "admin"}
    bob = {"user": "bob"}
    assert await proxy.lines() == [
        {"seq": 1, "event": "asked", **admin, "what": "alter", "entries": [{"entity": bob, "ops": [{"key": RATE, "value": 5.0}]}]},
        {"seq": 2, "event": "changed", "entity": bob, "key": RATE, "old": None, "new": 5.0, **admin, "request": 1},
        {"seq": 3, "event": "asked", **token, "what": "alter", "entries": [{"entity": bob, "ops": [{"key": RATE, "value": 6.0}]}]},
        {"seq": 4, "event": "changed", "entity": bob, "key": RATE, "old": 5.0, "new": 6.0, **token, "request": 3},
    ]
    assert proxy.counts.changes == {"kafka": 1, "http": 1}


async def test_who_may_not_gets_31_before_anything_is_looked_at(proxy: ProxyFixture) -> None:
    """Without the right each entry gets error 31, valid or not, with a text that names the remedy, and nothing changes."""
    nonsense = [setting(""), Alteration([], []), setting("bob", -1.0), setting("bob", key="x" * 5_000)]
    results = await proxy.administration.alter(ALICE, nonsense, validate_only=False)
    remedy = "name it in quota_admin.principals, or start Sluice with --quota-admin User:alice"
    denial = f"Sluice does not let User:alice change quotas: {remedy}"
    assert {(result.error_code, result.error_message) for result in results} == {(31, denial)}
    denial = "Sluice does not let User:alice read quotas: name it in quota_admin.describe_principals"
    assert proxy.administration.describe(ALICE, [Component("", 9, None)], strict=False) == (31, denial, None)
    assert await proxy.administration.alter(ALICE, [], validate_only=False) == []
    assert proxy.counts.denials == {"kafka": 2}
    assert not proxy.store.content.quotas


async def test_a_request_that_only_asks_changes_nothing(proxy: ProxyFixture) -> None:
    """A validate-only request gets the results of a real one and changes and logs nothing."""
    assert await proxy.set(ADMIN, "bob", validate_only=True) == Result(USER_BOB)
    assert (await proxy.set(ADMIN, "", validate_only=True)).error_code == 42
    assert (await proxy.set(ADMIN, "admin", validate_only=True)).error_message == DENIED_SELF
    assert not proxy.store.content.quotas
    assert await proxy.lines() == []


async def test_one_may_not_change_a_default_that_holds_for_oneself(proxy: ProxyFixture) -> None:
    """A principal may neither set nor remove a default that applies to it, until it has a quota of its own."""
    await proxy.set(OWNER, None, 9.0)
    denied = Result(entity_key([("user", None)]), 31, DENIED_DEFAULT)
    gone = Alteration([("user", None)], [Op(RATE, 0.0, True)])
    results = await proxy.administration.alter(ADMIN, [setting(None, -1.0), setting("bob")], validate_only=False)
    assert set(results) == {denied, Result(USER_BOB)}
    assert await proxy.administration.alter(ADMIN, [gone], validate_only=False) == [denied]
    assert proxy.store.content.quotas[denied.entity] == {RATE: 9.0}
    assert proxy.counts.denials == {"kafka": 2}
    await proxy.set(OWNER, "admin")
    assert (await proxy.set(ADMIN, None, 7.0)).error_code == 0
    assert proxy.store.content.quotas[denied.entity] == {RATE: 7.0}


async def test_one_may_not_change_what_is_for_oneself(proxy: ProxyFixture) -> None:
    """A principal may not change its own quota, other entries of the request are changed, and a super principal may."""
    results = await proxy.administration.alter(ADMIN, [setting("admin"), setting("bob")], validate_only=False)
    assert {(result.entity, result.error_code) for result in results} == {(entity_key([("user", "admin")]), 31), (USER_BOB, 0)}
    assert (await proxy.set(OWNER, "owner")).error_code == 0
    assert set(proxy.store.content.quotas) == {USER_BOB, entity_key([("user", "owner")])}


@pytest.mark.parametrize(
    "alteration",
    [
        Alteration([("user", "x" * 1_025)], [Op(RATE, 1.0, False)]),
        Alteration([("user", "ä" * 513)], [Op(RATE, 1.0, False)]),
        Alteration([("user", "x"), ("client-id", "y"), ("ip", "z"), ("user", "x")], [Op(RATE, 1.0, False)]),
        Alteration([("user", "x")], [Op(RATE, 1.0, False)] * 17),
        Alteration([("user", "x")], [Op("k" * 1_025, 1.0, True)]),
        Alteration([("t" * 1_025, "x")], []),
    ],
)
async def test_what_is_too_large_is_refused_alone(proxy: ProxyFixture, alteration: Alteration) -> None:
    """An entry that exceeds a limit gets error 42, and the other entries are changed."""
    results = await proxy.administration.alter(ADMIN, [alteration, setting("bob")], validate_only=False)
    assert [result.error_code for result in results] == [42, 0]
    assert " at most " in (results[0].error_message or "")


async def test_too_many_entries_are_refused_together(proxy: ProxyFixture) -> None:
    """A request with more than `ENTRIES_MAX` entries is refused as a whole."""
    alterations = [setting(f"u{at}") for at in range(ENTRIES_MAX + 1)]
    assert {result.error_code for result in await proxy.administration.alter(ADMIN, alterations, validate_only=False)} == {42}
    assert not proxy.store.content.quotas
    assert {result.error_code for result in await proxy.administration.alter(ADMIN, alterations[1:], validate_only=False)} == {0}
    assert len(proxy.store.content.quotas) == ENTRIES_MAX


async def test_host_names_are_not_looked_up(proxy: ProxyFixture) -> None:
    """A host name in a request is refused without a DNS lookup."""
    local = Alteration([("ip", "localhost")], [Op("connection_creation_rate", 5.0, False)])
    (result,) = await proxy.administration.alter(ADMIN, [local], validate_only=False)
    assert (result.error_code, result.error_message) == (42, "localhost is not a valid IP or resolvable host.")


async def test_what_cannot_be_written_down_is_not_done(proxy: ProxyFixture) -> None:
    """A change that cannot be logged is not made, and the error names the log."""
    proxy.audit.room = 0
    result = await proxy.set(ADMIN, "bob")
    assert result.error_code == -1
    assert (result.error_message or "").startswith("Nothing was changed, since the audit log could not be written: audit.file: ")
    with pytest.raises(AdminError, match="Nothing was changed"):
        await proxy.administration.switch(WRITER, "all", "off")
    assert proxy.store.content == EMPTY
    proxy.audit.room = 10
    assert (await proxy.set(ADMIN, "bob")).error_code == 0


async def test_what_was_done_and_could_not_be_written_down_is_an_error(proxy: ProxyFixture) -> None:
    """A change whose result cannot be logged is reported as an error."""
    proxy.audit.room = 1
    result = await proxy.set(ADMIN, "bob")
    assert (result.error_code, (result.error_message or "")[:56]) == (-1, "It was changed, and the audit log could not be written: ")
    assert [line["event"] for line in await proxy.lines()] == ["asked"]


@pytest.mark.parametrize("certain", [True, False])
async def test_a_store_that_is_gone_is_an_error_to_try_again(proxy: ProxyFixture, certain: bool) -> None:
    """While the store is unavailable valid entries get a retriable error, invalid ones keep theirs, and the failure is logged."""
    proxy.store.lost = StoreUnavailable("quotas.connect: 127.0.0.1:2181 does not answer; look at ZooKeeper", is_certain=certain)
    results = await proxy.administration.alter(ADMIN, [setting(""), setting("bob")], validate_only=False)
    assert [(result.error_code, result.error_message) for result in results] == [
        (42, "Empty user not supported"),
        (NOT_CONTROLLER, "quotas.connect: 127.0.0.1:2181 does not answer; look at ZooKeeper"),
    ]
    asked, failed = await proxy.lines()
    assert (asked["event"], failed["event"], failed["request"], failed["certain"]) == ("asked", "failed", asked["seq"], certain)


async def test_what_others_changed_in_the_store_is_written_down(proxy: ProxyFixture, caplog: pytest.LogCaptureFixture) -> None:
    """Changes by other programs are logged once, without a principal; the log has the first with old and new values."""
    caplog.set_level(logging.INFO, logger="sluice")
    await proxy.set(ADMIN, "bob", 5.0)
    outside = StoreContent({USER_BOB: {RATE: 7.0}, entity_key([("ip", None)]): {"connection_creation_rate": 3.0}}, {"all": "observe"})
    proxy.store.content = outside
    proxy.administration.content_arrived(outside, "outside")
    await proxy.administration.close()
    nobody = {"way": "outside", "principal": None, "peer": "", "listener": ""}
    assert (await proxy.lines())[2:] == [
        {"seq": 3, "event": "changed", "entity": {"user": "bob"}, "key": RATE, "old": 5.0, "new": 7.0, **nobody},
        {"seq": 4, "event": "changed", "entity": {"ip": None}, "key": "connection_creation_rate", "old": None, "new": 3.0, **nobody},
        {"seq": 5, "event": "switched", "target": "all", "old": None, "new": "observe", **nobody},
    ]
    assert proxy.counts.changes == {"kafka": 1, "outside": 3}
    [fields] = [record.fields for record in caplog.records if record.message == "quotas_changed_outside"]  # type: ignore[attr-defined]
    first = f"user=bob {RATE}: 5 -> 7; ip=<default> connection_creation_rate: none -> 3; all: no switch -> observe"
    assert fields == {"changes": 3, "first": first}
    proxy.administration.content_arrived(StoreContent({}, {}), "outside")
    await proxy.administration.close()
    assert [(line["event"], line["new"]) for line in (await proxy.lines())[5:]] == [
        ("changed", None),
        ("changed", None),
        ("switched", None),
    ]


async def test_changes_of_many_are_written_down_in_their_order(proxy: ProxyFixture) -> None:
    """Changes are logged in their order, even when thousands are compared in a thread."""
    many = {entity_key([("user", f"u{number}")]): {RATE: 1.0} for number in range(1_000)}
    for value in (1.0, 2.0):
        proxy.store.content = StoreContent({**many, USER_BOB: {RATE: value}}, {})
        proxy.administration.content_arrived(proxy.store.content, "outside")
    await proxy.set(ADMIN, "bob", 3.0)
    await proxy.administration.close()
    lines = [line for line in await proxy.lines() if line["event"] == "changed" and line["entity"] == {"user": "bob"}]
    assert [(line["old"], line["new"]) for line in lines] == [(None, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert proxy.counts.changes == {"kafka": 1, "outside": 1_002}


async def test_what_another_wrote_in_between_is_distinguished(proxy: ProxyFixture) -> None:
    """When one content has an own change and one of another program, each is logged with its origin."""

    class Busy(LostStore):
        async def alter(self, decide: Decide[T]) -> T:
            decide(self.content)
            self.content = StoreContent({USER_BOB: {RATE: 1.0}}, {})
            answer, changes = decide(self.content)
            assert changes == [Change(USER_BOB, RATE, 5.0), Change(entity_key([("user", "carol")]), RATE, 5.0)]
            self.content = StoreContent(
                {USER_BOB: {RATE: 5.0, "request_percentage": 9.0}, entity_key([("user", "carol")]): {RATE: 5.0}}, {}
            )
            self._on_content(self.content, "own")
            return answer

    proxy.store.__class__ = Busy
    await proxy.administration.alter(ADMIN, [setting("bob"), setting("carol")], validate_only=False)
    await proxy.administration.close()
    lines = await proxy.lines()
    changed = {(line["way"], line["key"], line["old"], line["new"]) for line in lines if line["event"] == "changed"}
    assert changed == {("kafka", RATE, 1.0, 5.0), ("kafka", RATE, None, 5.0), ("outside", "request_percentage", None, 9.0)}


async def test_who_gives_up_does_not_stop_what_was_begun(proxy: ProxyFixture) -> None:
    """A change whose request is cancelled is still made and logged."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Slow(LostStore):
        async def alter(self, decide: Decide[T]) -> T:
            reached.set()
            await go_on.wait()
            return await super().alter(decide)

    proxy.store.__class__ = Slow
    asking = asyncio.ensure_future(proxy.set(ADMIN, "bob"))
    await reached.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go_on.set()
    await proxy.administration.close()
    assert proxy.store.content.quotas == {USER_BOB: {RATE: 5.0}}
    assert [line["event"] for line in await proxy.lines()] == ["asked", "changed"]


async def test_many_at_once_keep_their_order(proxy: ProxyFixture) -> None:
    """Concurrent changes are logged so that each old value is the previous new one."""
    await asyncio.gather(*(proxy.set(ADMIN, "bob", float(at + 1)) for at in range(30)))
    changed = [line for line in await proxy.lines() if line["event"] == "changed"]
    assert [line["old"] for line in changed[1:]] == [line["new"] for line in changed[:-1]]
    assert proxy.store.content.quotas[USER_BOB][RATE] == changed[-1]["new"]


async def test_the_zookeeper_profile_keeps_what_its_brokers_keep() -> None:
    """In the ZooKeeper profile 0 is stored, byte rates are rounded to whole numbers, and NaN is refused."""
    proxy = ProxyFixture(profile="zookeeper")
    assert (await proxy.set(ADMIN, "bob", 0.0)).error_code == 0
    assert proxy.store.content.quotas == {USER_BOB: {RATE: 0.0}}
    assert (await proxy.set(ADMIN, "bob", 1_234.9999999)).error_code == 0
    assert proxy.store.content.quotas == {USER_BOB: {RATE: 1_235.0}}
    assert (await proxy.set(ADMIN, "bob", float("nan"))).error_code == 42
    percent = setting("bob", 12.5, "request_percentage")
    twice = [percent, Alteration([("user", "bob")], [Op(RATE, 0.0, True), Op("request_percentage", 1e-7, False)])]
    await proxy.administration.alter(ADMIN, twice, validate_only=False)
    assert proxy.store.content.quotas == {USER_BOB: {"request_percentage": 1e-7}}
    assert proxy.administration.describe(ADMIN, ALL, strict=False) == (0, None, {USER_BOB: {"request_percentage": 1e-7}})


async def test_without_bound_is_a_value_too(proxy: ProxyFixture) -> None:
    """An infinite request percentage is stored and logged as "inf"."""
    share = setting("bob", float("inf"), "request_percentage")
    assert await proxy.administration.alter(ADMIN, [share], validate_only=False) == [Result(USER_BOB)]
    assert (await proxy.lines())[-1]["new"] == "inf"


async def test_switches_pass_the_same_door(proxy: ProxyFixture) -> None:
    """Switches are subject to the same rights, and each change is logged with its old value."""
    for target in ("all", "listener:default", "entity:user=bob", "entity:user=<default>,client-id=x", "entity:ip=10.0.0.1"):
        await proxy.administration.switch(WRITER, target, "observe")
    await proxy.administration.switch(WRITER, "all", "off")
    await proxy.administration.switch(WRITER, "all", None)
    await proxy.administration.switch(WRITER, "all", None)
    assert list(proxy.store.content.switches) == [
        "listener:default",
        "entity:user=bob",
        "entity:user=<default>,client-id=x",
        "entity:ip=10.0.0.1",
    ]
    reported = [(line["target"], line["old"], line["new"]) for line in await proxy.lines() if line["event"] == "switched"]
    assert reported[-2:] == [("all", "observe", "off"), ("all", "off", None)]
    with pytest.raises(AdminError, match="Sluice does not let User:alice change quotas"):
        await proxy.administration.switch(ALICE, "all", "off")
    with pytest.raises(AdminError, match=DENIED_SELF):
        await proxy.administration.switch(ADMIN, "entity:client-id=x,user=admin", "off")
    with pytest.raises(AdminError, match="is no mode of a switch"):
        await proxy.administration.switch(WRITER, "all", "loud")


async def test_pacings_pass_the_same_door(proxy: ProxyFixture) -> None:
    """Pacings are subject to the rights of switches and to what the configuration can pace, and each is logged with its old value."""
    administration = proxy.administration
    administration.pacing_rules = PacingRules(None, {"shop": None, "etl": "shop"})
    await administration.pace(WRITER, "group:shop", "paced")
    await administration.pace(WRITER, "group:shop", "window")
    assert dict(proxy.store.content.pacing) == {"group:shop": "window"}
    reported = [(line["target"], line["old"], line["new"]) for line in await proxy.lines() if line["event"] == "paced"]
    assert reported == [("group:shop", None, "paced"), ("group:shop", "paced", "window")]
    for target, pacing, problem in (
        ("group:etl", "paced", '"etl" has the pacing of the group above it; write group:shop'),
        ("group:gone", "paced", 'no declared group is named "gone"; there is shop, etl'),
        ("entity:ip=10.0.0.1", "paced", "connections of an address are not paced"),
        ("all", "fast", '"fast" is no pacing; write paced or window'),
    ):
        with pytest.raises(AdminError, match=problem):
            await administration.pace(WRITER, target, pacing)
    with pytest.raises(AdminError, match=DENIED_SELF):
        await administration.pace(ADMIN, "entity:client-id=x,user=admin", "paced")
    with pytest.raises(AdminError, match="Sluice does not let User:alice change quotas"):
        await administration.pace(ALICE, "all", "paced")
    administration.pacing_rules = PacingRules('cannot be "paced" here')
    with pytest.raises(AdminError, match='the pacing cannot be "paced" here; write window, or default'):
        await administration.pace(WRITER, "all", "paced")
    await administration.pace(WRITER, "group:shop", None)
    assert dict(proxy.store.content.pacing) == {}


async def test_a_switch_of_a_listener_that_does_not_exist(proxy: ProxyFixture) -> None:
    """A switch can be set for listeners that exist only, and removed for all: a listener may be gone."""
    await proxy.administration.switch(WRITER, "listener:edge", "off")
    proxy.administration.listeners = ["default", "inner"]
    with pytest.raises(AdminError, match='no listener is named "edge"; there is default, inner') as caught:
        await proxy.administration.switch(WRITER, "listener:edge", "observe")
    assert caught.value.code == 42
    await proxy.administration.switch(WRITER, "listener:inner", "observe")
    await proxy.administration.switch(WRITER, "listener:edge", None)
    assert dict(proxy.store.content.switches) == {"listener:inner": "observe"}


@pytest.mark.parametrize("target", ["", "ALL", "listener:a b", "entity:user=", "entity:ip=10.0.0.1,user=u", "entity:user=%zz"])
async def test_what_cannot_be_switched(proxy: ProxyFixture, target: str) -> None:
    """A switch of an invalid target gets error 42."""
    with pytest.raises(AdminError) as caught:
        await proxy.administration.switch(WRITER, target, "off")
    assert caught.value.code == 42


async def test_who_logged_in_sees_their_own_quotas_where_that_is_set() -> None:
    """With `describe_self` a user sees its own quotas and the defaults, and no other user's."""
    proxy = ProxyFixture(Rules("list", frozenset({"User:admin"}), describe_self=True))
    for user in ("alice", "bob", None):
        await proxy.set(WRITER, user)
    found = proxy.administration.describe(ALICE, ALL, strict=False).entries
    assert found is not None
    assert set(found) == {entity_key([("user", "alice")]), entity_key([("user", None)])}
    assert proxy.administration.describe(ALICE._replace(principal="User:ANONYMOUS"), ALL, strict=False).error_code == 31
    assert len(proxy.administration.describe(ADMIN, ALL, strict=False).entries or ()) == 3


async def test_denials_are_counted_and_a_few_written_down(proxy: ProxyFixture) -> None:
    """All denials are counted, and at most one a second is logged with the number of unlogged ones."""
    for _ in range(50):
        await proxy.set(ALICE, "bob")
    proxy.now_ms += 1_000
    await proxy.set(ALICE, "bob")
    await proxy.administration.close()
    assert proxy.counts.denials == {"kafka": 51}
    assert [(line["event"], line["principal"], line["untold"]) for line in await proxy.lines()] == [
        ("denied", "User:alice", 0),
        ("denied", "User:alice", 49),
    ]
