"""Describes and changes quotas, for Kafka's APIs and for HTTP.

The order is: authorization, size limits, validation, an audit line with the request, the change, an audit line with the result, the
response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from proxy.base.offload import INLINE_ITEMS_MAX, offload
from proxy.base.units import shown
from proxy.enforcement.pacing import PacingRules, read_paced_target, read_pacing
from proxy.enforcement.switches import SwitchError, read_mode, read_target
from proxy.quota_admin.audit.audit import AuditTrail, AuditUnavailable, Event, who
from proxy.quota_admin.audit.lines import asked_entries, lines_of, text_of
from proxy.quota_admin.authorizer import Authorizer, own_part
from proxy.quota_admin.limits import too_large
from proxy.quota_admin.observed import AppliedChange, Observed, Unexpected
from proxy.quota_admin.profiles import Profile, describe, judge
from proxy.quota_admin.requester import Requester, Right
from proxy.quota_store.store import Decide, Origin, StoreChange, StoreContent, StoreUnavailable, SwitchChange
from proxy.telemetry import log
from proxy.telemetry.counters import AdministrationCounts, bump
from quota.admin.messages import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    UNKNOWN_SERVER_ERROR,
    AdminError,
    Alteration,
    Component,
    Description,
    EntityKey,
    Result,
)

if TYPE_CHECKING:
    from proxy.config.sections.admin import Authority

T = TypeVar("T")

NOT_CONTROLLER: Final = 41
"""Kafka's error code for a temporary failure; clients retry."""
OUTSIDE: Final = "outside"
"""The requester of changes that another process or an editor made in the store."""
OF_OTHERS: Final[Event] = {"way": OUTSIDE, "principal": None, "peer": "", "listener": ""}
DENIALS_APART_MS: Final = 1_000
"""Minimum interval of audit lines for denials; a line has the number of denials since the last one."""
CHANGES_LOGGED_MAX: Final = 3
DENIED_SELF: Final = "A principal may not change its own quotas, unless it is a super principal."
DENIED_DEFAULT: Final = "A principal may not change a default quota that applies to it, unless it is a super principal."


class AlterableStore(Protocol):
    """The part of a store that the administration needs."""

    @property
    def content(self) -> StoreContent:
        """The last valid content."""

    async def alter(self, decide: Decide[T]) -> T:
        """Make changes; see `QuotaStore.alter`."""


class Administration:
    """Describes and changes the quotas of a store.

    Attributes:
        authorizer: decides which principals are allowed.
        altering: the principal whose change is in progress.
        listeners: names of the listeners that a switch may be set for; None: any.
        pacing_rules: what may be paced at run time.
    """

    def __init__(
        self,
        store: AlterableStore,
        authorizer: Authorizer,
        audit: AuditTrail,
        counts: AdministrationCounts,
        *,
        now_ms: Callable[[], int],
        profile: Profile = "kraft",
        listeners: Collection[str] | None = None,
    ) -> None:
        self._store = store
        self.listeners = listeners
        self.pacing_rules = PacingRules()
        self._audit = audit
        self._profile: Profile = profile
        self.authorizer = authorizer
        self._counts = counts
        self._now_ms = now_ms
        self.altering: str | None = None
        self._denied_ms: int | None = None
        self._denials_unlogged = 0
        self._observed = Observed()
        self._one_at_a_time = asyncio.Lock()
        self._in_order = asyncio.Lock()  # keeps audit lines in the order in which the changes were applied
        self._under_way: set[asyncio.Task[Any]] = set()

    @property
    def authority(self) -> Authority:
        """The configured authority."""
        return self.authorizer.rules.authority

    @property
    def quotas(self) -> Mapping[EntityKey, Mapping[str, float]]:
        """All stored quotas, for requesters that may read them."""
        return self._store.content.quotas

    @property
    def switches(self) -> Mapping[str, str]:
        """All stored switches."""
        return self._store.content.switches

    @property
    def pacing(self) -> Mapping[str, str]:
        """How quotas are enforced by the store, by target."""
        return self._store.content.pacing

    def may_alter(self, requester: Requester, broker_allows: bool | None = None) -> bool:
        """Whether a requester may change quotas."""
        return self.authorizer.may_alter(requester, broker_allows)

    def may_describe(self, requester: Requester, broker_allows: bool | None = None) -> bool:
        """Whether a requester may read all quotas."""
        return self.authorizer.may_describe(requester, broker_allows)

    def denial(self, requester: Requester, right: Right) -> str:
        """Return the text of the answer to a requester without a right."""
        return self.authorizer.denial(requester, right)

    def describe(
        self, requester: Requester, components: Sequence[Component], *, strict: bool, broker_allows: bool | None = None
    ) -> Description:
        """Return the quotas that match a filter; only its own for a requester that may read only these, error 31 without rights.

        Args:
            requester: the requester.
            components: the filter.
            strict: whether entities may have no other types than those of the filter.
            broker_allows: the broker's result if it is the authority.
        """
        if not self._may_see(requester, broker_allows):
            return self._not_described(requester)
        return self._described(self._store.content.quotas, self._seen_by(requester, broker_allows), components, strict)

    async def describe_many(
        self, requester: Requester, components: Sequence[Component], *, strict: bool, broker_allows: bool | None = None
    ) -> Description:
        """Do the same as `describe` for a filter that may match many quotas; a large content is searched in a thread."""
        if not self._may_see(requester, broker_allows):
            return self._not_described(requester)
        quotas, only_of = self._store.content.quotas, self._seen_by(requester, broker_allows)
        return await offload(len(quotas), self._described, quotas, only_of, components, strict)

    async def alter(
        self, requester: Requester, alterations: Sequence[Alteration], *, validate_only: bool, broker_allows: bool | None = None
    ) -> list[Result]:
        """Validate alterations, make the valid and authorized ones, and return a result for each entity.

        A change in progress is completed and logged, even if the caller is cancelled.
        """
        if not self.may_alter(requester, broker_allows):
            if alterations:
                self._deny(requester, "alter")
            denial = self.denial(requester, "write")
            return [Result(one.entity, CLUSTER_AUTHORIZATION_FAILED, denial) for one in alterations]
        refused, right = await self._split_by_permission(requester, alterations)
        if not right:
            return refused
        if validate_only:
            judged, _ = await offload(len(right), judge, self._profile, right, self._store.content.quotas)
            return refused + judged
        return refused + await self._finished(self._alter(requester, right))

    async def switch(self, requester: Requester, target: str, mode: str | None) -> None:
        """Set or remove one switch.

        Args:
            requester: the requester.
            target: "all", "listener:NAME" or "entity:user=NAME,client-id=NAME", as `proxy.enforcement.switches` reads it.
            mode: "enforce", "observe" or "off"; None removes the switch.

        Raises:
            AdminError: the switch was not changed; the code is one of Kafka's.
        """
        self._check_may_set(requester, "switch")
        try:
            read = read_target(target)
            kept = None if mode is None else read_mode(mode).value
        except SwitchError as error:
            raise AdminError(INVALID_REQUEST, str(error)) from None
        if kept is not None and read.listener is not None and self.listeners is not None and read.listener not in self.listeners:
            raise AdminError(INVALID_REQUEST, f"no listener is named {shown(read.listener)}; there is {', '.join(self.listeners)}")
        self._check_is_another(requester, "switch", read.entity)
        await self._finished(self._set(requester, "switch", SwitchChange(str(read), kept)))

    async def pace(self, requester: Requester, target: str, pacing: str | None) -> None:
        """Set how quotas are enforced, or remove that.

        Args:
            requester: the requester.
            target: "all", "group:NAME" or "entity:user=NAME,client-id=NAME", as `proxy.enforcement.pacing` reads it.
            pacing: "window" or "paced"; None: as configured.

        Raises:
            AdminError: nothing was changed; the code is one of Kafka's.
        """
        self._check_may_set(requester, "pace")
        try:
            read = read_paced_target(target)
            if pacing is not None:
                self.pacing_rules.check(read, read_pacing(pacing))
        except SwitchError as error:
            raise AdminError(INVALID_REQUEST, str(error)) from None
        self._check_is_another(requester, "pace", read.entity)
        await self._finished(self._set(requester, "pace", SwitchChange(str(read), pacing, "pacing")))

    def _check_may_set(self, requester: Requester, what: str) -> None:
        if not self.may_alter(requester):
            self._deny(requester, what)
            raise AdminError(CLUSTER_AUTHORIZATION_FAILED, self.denial(requester, "write"))

    def _check_is_another(self, requester: Requester, what: str, entity: EntityKey | None) -> None:
        if entity is not None and self.authorizer.is_denied_self(requester, entity):
            self._deny(requester, what)
            raise AdminError(CLUSTER_AUTHORIZATION_FAILED, DENIED_SELF)

    def content_arrived(self, content: StoreContent, origin: Origin) -> None:
        """Apply a new content of the store, and log the changes of other programs; called on the event loop's thread."""
        unexpected = self._observed.arrived(content, origin)
        if unexpected is None:
            return
        found = unexpected.changes() if unexpected.size <= INLINE_ITEMS_MAX else None
        if found is None or found:
            self._keep(asyncio.ensure_future(self._note_outside(unexpected)))

    async def close(self) -> None:
        """Wait until the changes in progress are complete."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    # --- describing

    def _may_see(self, requester: Requester, broker_allows: bool | None) -> bool:
        """Whether a requester may read anything; a denial is counted."""
        if self.may_describe(requester, broker_allows) or self.authorizer.may_describe_own(requester):
            return True
        self._deny(requester, "describe")
        return False

    def _not_described(self, requester: Requester) -> Description:
        """Return the answer without rights; a broker says nothing in it."""
        denial = None if self.authority == "broker" else self.denial(requester, "read")
        return Description(CLUSTER_AUTHORIZATION_FAILED, denial, None)

    def _seen_by(self, requester: Requester, broker_allows: bool | None) -> str | None:
        """Return the principal of a requester that may read only its own quotas; None: it may read all."""
        return None if self.may_describe(requester, broker_allows) else requester.principal

    def _described(
        self, quotas: Mapping[EntityKey, Mapping[str, float]], only_of: str | None, components: Sequence[Component], strict: bool
    ) -> Description:
        found = describe(self._profile, components, quotas, strict=strict)
        if only_of is None or found.entries is None:
            return found
        return found._replace(entries=own_part(found.entries, only_of))

    # --- changing

    async def _split_by_permission(self, requester: Requester, alterations: Sequence[Alteration]) -> tuple[list[Result], list[Alteration]]:
        refused: list[Result] = []
        right: list[Alteration] = []
        for number, one in enumerate(alterations, 1):
            if number % INLINE_ITEMS_MAX == 0:
                await asyncio.sleep(0)  # let other tasks run
            entity = one.entity
            if (denial := self._denial(requester, one)) is not None:
                self._deny(requester, "alter")
                refused.append(Result(entity, CLUSTER_AUTHORIZATION_FAILED, denial))
            elif (complaint := too_large(one, len(alterations))) is not None:
                refused.append(Result(entity, INVALID_REQUEST, complaint))
            else:
                right.append(one)
        return refused, right

    def _denial(self, requester: Requester, alteration: Alteration) -> str | None:
        """Return why a requester that may change quotas must not change this one; None: it may."""
        if self.authorizer.is_denied_self(requester, alteration.entity):
            return DENIED_SELF
        return DENIED_DEFAULT if self.authorizer.is_denied_default(requester, alteration, self._store.content.quotas) else None

    async def _alter(self, requester: Requester, alterations: Sequence[Alteration]) -> list[Result]:
        async with self._one_at_a_time:
            judged, _ = await offload(len(alterations), judge, self._profile, alterations, self._store.content.quotas)
            if all(result.error_code for result in judged):
                return judged
            asked = await offload(len(alterations), asked_entries, alterations)
            results = judged

            def decide(content: StoreContent) -> tuple[list[AppliedChange], Sequence[StoreChange]]:
                nonlocal results
                results, changes = judge(self._profile, alterations, content.quotas)
                return self._observed.expect(content, changes), changes

            try:
                await self._carried_out(requester, {"what": "alter", "entries": asked}, decide)
            except AdminError as error:
                return [result if result.error_code else Result(result.entity, error.code, error.message) for result in judged]
            return results

    async def _set(self, requester: Requester, what: str, change: SwitchChange) -> None:
        async with self._one_at_a_time:

            def decide(content: StoreContent) -> tuple[list[AppliedChange], Sequence[StoreChange]]:
                changes = [change] if content.table(change.table).get(change.target) != change.mode else []
                return self._observed.expect(content, changes), changes

            await self._carried_out(requester, {"what": what, "target": change.target, "mode": change.mode}, decide)

    async def _carried_out(self, requester: Requester, asked: Event, decide: Decide[list[AppliedChange]]) -> None:
        """Log the request, make the change, log the result.

        Raises:
            AdminError: the change was not made, or its result could not be logged.
        """
        named = who(requester)
        try:
            request = await self._audit.append([{"event": "asked", **named, **asked}])
        except AuditUnavailable as error:
            self._counts.audit_failures += 1
            raise AdminError(UNKNOWN_SERVER_ERROR, f"Nothing was changed, since the audit log could not be written: {error}") from error
        self.altering = requester.principal
        try:
            made = await self._store.alter(decide)
        except StoreUnavailable as error:
            await self._append({"event": "failed", **named, "request": request, "certain": error.is_certain, "problem": str(error)})
            raise AdminError(NOT_CONTROLLER, str(error)) from error
        finally:
            self.altering = None
            self._observed.stop_expecting()
        self._count(requester.way, len(made))
        try:
            async with self._in_order:
                await self._audit.append(await offload(len(made), lines_of, made, {**named, "request": request}))
        except AuditUnavailable as error:
            self._counts.audit_failures += 1
            log.error("audit_unavailable", problem=str(error), request=request, changes=len(made))
            raise AdminError(UNKNOWN_SERVER_ERROR, f"It was changed, and the audit log could not be written: {error}") from error

    async def _note_outside(self, unexpected: Unexpected) -> None:
        async with self._in_order:
            made = await offload(unexpected.size, unexpected.changes)
            if not made:
                return
            self._count(OUTSIDE, len(made))
            log.info("quotas_changed_outside", changes=len(made), first="; ".join(map(text_of, made[:CHANGES_LOGGED_MAX])))
            await self._append(*await offload(len(made), lines_of, made, OF_OTHERS))

    async def _append(self, *events: Event) -> None:
        """Append events to the audit log without a response that depends on them; a failure is logged."""
        try:
            await self._audit.append(events)
        except AuditUnavailable as error:
            self._counts.audit_failures += 1
            log.error("audit_unavailable", problem=str(error), event_lost=str(events[0].get("event")), lines=len(events))

    def _deny(self, requester: Requester, what: str) -> None:
        """Count and report a denial, at a limited rate, so that repeated attempts fill neither the disk nor the log."""
        bump(self._counts.denials, requester.way)
        log.warning("quota_admin_denied", limit_key="quota_admin_denied", what=what, **who(requester))
        now_ms = self._now_ms()
        if self._denied_ms is not None and now_ms - self._denied_ms < DENIALS_APART_MS:
            self._denials_unlogged += 1
            return
        untold, self._denials_unlogged, self._denied_ms = self._denials_unlogged, 0, now_ms
        self._keep(asyncio.ensure_future(self._append({"event": "denied", **who(requester), "what": what, "untold": untold})))

    def _count(self, way: str, changes: int) -> None:
        if changes:
            bump(self._counts.changes, way, changes)

    async def _finished(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which continues when its caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._keep(task)
        return await asyncio.shield(task)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
