"""Groups per quota type, found by the tags of the callback, with bounds that follow the quota table.

Source: Kafka 3.8 `ClientQuotaManager`, `QuotaFactory`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, TypeVar

from quota.callbacks.callback import CUSTOM_LEVEL, DECLARED_LEVEL, USER_TAG, ClientQuotaCallback, DefaultQuotaCallback, tags_of
from quota.callbacks.group_callback import GroupCallback
from quota.entity import UNLIMITED, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal, user_tag
from quota.errors import QuotaError
from quota.groups.declared_groups import GROUP_TAG, NO_GROUPS, DeclaredGroups
from quota.groups.group import GroupKey, QuotaGroup, group_key
from quota.groups.mutation_group import MutationGroup
from quota.limits import QuotaLimits, Rule, RuleKey, level_of
from quota.maker import NO_MAKER, Maker, maker_of
from quota.names import is_shortened

INACTIVE_MS: Final = 3_600_000
"""A group without a record for longer than this is forgotten."""

GROUPS_MAX: Final = 50_000
"""Clients choose their ids, so the number of groups has a bound; see `_group_beyond_the_bound`."""

GROUPS_PER_USER_MAX: Final = 1_000
"""Maximum number of groups per authenticated user, which changes its client-id, and per address for clients without a known user."""

OVERFLOWS_MAX: Final = 1_000
"""Maximum number of overflow groups, which are shared by clients that have too many groups, or that found the table full ..."""

OVERFLOWS_PER_PLACE_MAX: Final = 100
"""... of which at most this many for names from one address."""

OVERFLOW: Final = "__other__"
LISTENER_TAG: Final = "listener"
ADDRESS_TAG: Final = "address"
"""The tag of an overflow group, shared by clients of one address."""
FIND_COST: Final = 3
"""Cost of finding an entity's group, as a multiple of the cost of requesting the limit of a known group."""

Group = TypeVar("Group", bound=QuotaGroup | MutationGroup)
RateGroup = TypeVar("RateGroup", bound=QuotaGroup)


class _Made:
    """The groups that one maker made, and when they were last checked for idle ones."""

    __slots__ = ("keys", "swept_ms")

    def __init__(self) -> None:
        self.keys: dict[GroupKey, None] = {}
        self.swept_ms = -(2**63)


class Renewals:
    """Counts how often cached groups of some managers may have become out of date: a client of several compares one number.

    Attributes:
        number: increases with the generation of each of the managers.
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class QuotaGroups(Generic[Group]):
    """Common base of the managers of all types: the table of limits, the callback, and the groups.

    Attributes:
        enabled: a quota of this type has ever been set (or a custom callback is used) and quotas are not switched off. While False
            nothing is recorded.
        generation: increases whenever a cached group may be out of date.
        renewals: counts that together with other managers.
        custom_callback: the callback is not Kafka's own, so the group has to be requested for each request.

    Args:
        make: makes a group from tags, bound and settings; `parent` makes it part of another group.
        cap_ms: maximum of a verdict; None: only that of 32 bits, at which Kafka's number wraps (and may become negative).
    """

    def __init__(
        self,
        quota_type: ClientQuotaType,
        make: Callable[..., Group],
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        callback: ClientQuotaCallback | None = None,
        static_default: float | None = None,
        lazy: bool = True,
        groups_max: int = GROUPS_MAX,
        groups_per_user_max: int = GROUPS_PER_USER_MAX,
        cap_ms: int | None = None,
    ) -> None:
        self.quota_type = quota_type
        self._make = make
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.generation = 0
        self.renewals = Renewals()
        self.groups_max = groups_max
        self.groups_per_user_max = groups_per_user_max
        self.groups_overflowed = 0
        self._swept_ms = -(2**63)
        self._declared = NO_GROUPS
        self._lazy = lazy
        self._longest_ms = cap_ms
        self._limits = QuotaLimits()
        self._groups: dict[GroupKey, Group] = {}
        self._overflow: dict[tuple[Maker, float], Group] = {}  # by who shares one, and limit
        self._overflows_at: dict[Maker, int] = {}  # of names that came in there
        self._overflow_place: dict[tuple[Maker, float], Maker] = {}
        self._overflow_swept_ms = -(2**63)
        self._made_by: dict[Maker, _Made] = {}
        self._maker_of: dict[GroupKey, Maker] = {}
        self._bounds_due: set[GroupKey] = set()  # of groups whose tags a custom callback has to see whole, so when they are whole
        self._switched_on = True
        self._static_default = static_default
        self._levels = 0
        self._idle_group: Group = self._new_group({}, UNLIMITED, 0)
        self._install(callback)

    # The quota table

    @property
    def limits(self) -> Mapping[ClientQuotaEntity, float]:
        """The quotas in force, by entity."""
        return self._limits.bounds

    def update_quota(self, entity: ClientQuotaEntity, bound: float | None) -> None:
        """Set an entity's quota in units per second, or remove it with None; takes effect on the next record."""
        self._limits = self._limits.changed({entity: bound})
        self._deliver(entity, bound)
        self._refresh({entity})
        self._changed()

    def replace_quotas(self, table: Mapping[ClientQuotaEntity, float]) -> None:
        """Replace all quotas by `table`, with one refresh for all changes; the caller does not modify it afterwards."""
        before, self._limits = self._limits, QuotaLimits.of(table)
        changes = self._limits.since(before)
        if not changes:
            return
        self._deliver_all(changes)
        self._refresh(changes)
        self._changed()

    def update_static_default(self, bound: float | None) -> None:
        """Set the ninth level (`producer_default`, `consumer_default`); None removes it. A custom callback never receives it."""
        if bound == self._static_default:
            return
        self._static_default = bound
        if isinstance(self._base, DefaultQuotaCallback):
            self._base.update_static_default(bound)
            self._levels |= self._base.levels
        self.refresh_bounds()

    def refresh_bounds(self) -> None:
        """Request the limit of every group again, as after a change of the cluster."""
        self._ask_bounds()
        self._changed()

    # The callback

    @property
    def callback(self) -> ClientQuotaCallback:
        """The callback that resolves groups and limits."""
        return self._callback

    def replace_callback(self, callback: ClientQuotaCallback | None) -> None:
        """Use another callback from the next request on; it receives every quota first. Groups with equal tags continue."""
        self._install(callback)
        self._deliver_all(self._limits)
        self.refresh_bounds()

    # Declared groups

    def declare(self, groups: DeclaredGroups) -> None:
        """Use these declared groups from the next request on, and no others. Groups of the same name continue, under any parent."""
        self._declared = groups
        self._layer()
        for key in [key for key, group in self._groups.items() if GROUP_TAG in group.tags]:
            if not groups.has_bound(self.quota_type, dict(key)[GROUP_TAG]):
                self._groups.pop(key).leave()
        for key in [key for key, group in self._groups.items() if GROUP_TAG in group.tags]:
            self._link(key)
        self.refresh_bounds()

    # On and off (KIP-13)

    def switch(self, on: bool) -> None:
        """Stop or resume recording and checking for the whole process; groups and quotas stay."""
        self._switched_on = on
        self._changed()

    def close(self) -> None:
        """Stop recording. The callback is shared, so its owner closes it."""
        self.switch(on=False)

    def renew(self) -> None:
        """Let clients look up their groups again."""
        self.generation += 1
        self.renewals.number += 1

    # Per request

    def group(self, principal: KafkaPrincipal, client_id: str, now_ms: int, maker: Maker | None = None) -> Group:
        """Return the group of a client, made if necessary: what Kafka does on every request.

        While not enabled, a placeholder without a bound is returned.

        Args:
            maker: the maker that the group counts for; None: that of the principal, and no maker for a client without a known user.
        """
        if not self.enabled:
            return self._idle_group
        tags = self._callback.quota_metric_tags(self.quota_type, principal, client_id)
        key = group_key(tags)
        group = self._groups.get(key)
        if group is None:
            group = self._add_group(tags, key, maker_of(principal) if maker is None else maker, now_ms)
        elif self._bounds_due and key in self._bounds_due:
            self._bounds_due.discard(key)
            group.update_bound(self._limit(tags))
        if self._callback.quota_reset_required(self.quota_type):
            self.refresh_bounds()
        return group

    # Listing and forgetting groups

    def holds(self, group: object) -> bool:
        """Whether `group` is one of this manager's groups, overflow groups included."""
        key = getattr(group, "key", None)
        return self._groups.get(key) is group or any(shared is group for shared in self._overflow.values())  # type: ignore[arg-type]

    def groups(self) -> Collection[Group]:
        """Every live group."""
        return self._groups.values()

    @property
    def rules(self) -> Mapping[RuleKey, Rule]:
        """The quotas in force, each with its entity, by names in the form used in tags."""
        return self._limits.rules

    def find(self, key: GroupKey) -> Group | None:
        """Return the group of a key, or None."""
        return self._groups.get(key)

    def rule(self, group: Group) -> ClientQuotaEntity | None:
        """Return the entity whose quota applies to a group; None with a custom callback, the static default, or no quota."""
        if not isinstance(self._base, DefaultQuotaCallback):
            return None
        found = self._base.rule(group.tags)
        return None if found is None else found[0]

    def expire(self, now_ms: int) -> int:
        """Forget groups without a record for more than an hour, history included; return how many."""
        forgotten = [key for key, group in self._groups.items() if group.is_idle(INACTIVE_MS, now_ms)]
        self._forget(forgotten)
        self._forget_overflow([shared for shared, group in self._overflow.items() if group.is_idle(INACTIVE_MS, now_ms)])
        for group in self._groups.values():
            if group.throttle_time is not None and now_ms - group.throttle_time.last_record_ms > INACTIVE_MS:
                group.throttle_time = None
        return len(forgotten)

    def release(self) -> None:
        """The scope is gone: the groups of this manager leave the sharing of usage."""
        for group in (*self._groups.values(), *self._overflow.values()):
            group.leave()

    # Implementation

    def _new_group(self, tags: Mapping[str, str], bound: float, now_ms: int) -> Group:
        raise NotImplementedError

    def _with_parent(self, group: Group, parent: Group | None) -> Group:
        """Return a group with another parent (or none) that continues `group`."""
        raise NotImplementedError

    def _made_like(self, group: Group, parent: Group | None) -> Group:
        above = {} if parent is None else {"parent": parent}
        return self._make(group.tags, group.bound, **above, **group.like())

    def _add_declared(self, tags: Mapping[str, str], key: GroupKey, now_ms: int) -> Group:
        """Make a declared group and its parents. Their number is the operator's, so the limits on clients' groups do not apply."""
        group = self._groups[key] = self._new_group(tags, self._limit(tags), now_ms)
        group.key = key
        return self._link(key, now_ms)

    def _link(self, key: GroupKey, now_ms: int | None = None) -> Group:
        """Make a declared group part of its parent, which is made if necessary."""
        group = self._groups[key]
        parent: Group | None = None
        if isinstance(self._callback, GroupCallback):
            tags = self._callback.parent_tags(self.quota_type, group.tags)
            if tags is not None:
                above = group_key(tags)
                if above in self._groups:
                    parent = self._link(above, now_ms)
                else:
                    parent = self._add_declared(tags, above, group.last_record_ms if now_ms is None else now_ms)
        group = self._groups[key] = self._with_parent(group, parent)
        return group

    def _add_group(self, tags: Mapping[str, str], key: GroupKey, maker: Maker, now_ms: int) -> Group:
        if self._declared and GROUP_TAG in tags:
            return self._add_declared(tags, key, now_ms)
        bound = self._limit(tags)
        if not (self._has_share_left(maker.share, now_ms) and self._has_room(now_ms)):
            return self._group_beyond_the_bound(bound, now_ms, maker)
        group = self._groups[key] = self._new_group(tags, bound, now_ms)
        group.key = key  # an equal one was made with it: keep one of them
        if any(maker):
            self._made_by.setdefault(maker.share, _Made()).keys[key] = None
            self._maker_of[key] = maker.share
        return group

    # A group idle for longer than all its samples live would start as if new: forgetting it changes no verdict. Looked for at most once
    # per window, as it takes a look at each.

    def _has_share_left(self, share: Maker, now_ms: int) -> bool:
        """Whether a maker may make one more group; its idle groups make room."""
        made = self._made_by.get(share)
        if made is None or len(made.keys) < self.groups_per_user_max:
            return True
        if now_ms - made.swept_ms < self.window_ms:
            return False
        made.swept_ms = now_ms
        self._forget([key for key in made.keys if self._is_idle(self._groups[key], now_ms)])
        return len(made.keys) < self.groups_per_user_max

    def _has_room(self, now_ms: int) -> bool:
        """Whether there is room for one more group; idle groups make room."""
        if len(self._groups) >= self.groups_max and now_ms - self._swept_ms >= self.window_ms:
            self._swept_ms = now_ms
            self._forget([key for key, group in self._groups.items() if self._is_idle(group, now_ms)])
        return len(self._groups) < self.groups_max

    def _is_idle(self, group: Group, now_ms: int) -> bool:
        return group.is_idle(self.num_samples * self.window_ms, now_ms)

    def _group_beyond_the_bound(self, bound: float, now_ms: int, maker: Maker) -> Group:
        """Return a group shared by clients with the same limit: too strict rather than unlimited.

        Makers do not share groups while there is room for more. Then a maker shares one with all names of its place, and after that
        with all makers.
        """
        self.groups_overflowed += 1
        share, place = maker.share, maker.place
        if len(self._overflow) >= OVERFLOWS_MAX and now_ms - self._overflow_swept_ms >= self.window_ms:
            self._overflow_swept_ms = now_ms
            self._forget_overflow([shared for shared, group in self._overflow.items() if self._is_idle(group, now_ms)])
        for sharing in (share, place, NO_MAKER):
            group = self._overflow.get((sharing, bound))
            if group is not None:
                return group
            if self._may_overflow(sharing, place):
                break
        group = self._overflow[sharing, bound] = self._new_group(_overflow_tags(bound, sharing), bound, now_ms)
        if sharing.user:
            self._overflow_place[sharing, bound] = place
            self._overflows_at[place] = self._overflows_at.get(place, 0) + 1
        return group

    def _may_overflow(self, sharing: Maker, place: Maker) -> bool:
        """Whether there is room for one more overflow group of this place."""
        if not any(sharing):
            return True
        if sharing.user and any(place) and self._overflows_at.get(place, 0) >= OVERFLOWS_PER_PLACE_MAX:
            return False
        return len(self._overflow) < OVERFLOWS_MAX

    def _forget(self, keys: Collection[GroupKey]) -> None:
        for key in keys:
            self._groups.pop(key).leave()
            self._bounds_due.discard(key)
            maker = self._maker_of.pop(key, NO_MAKER)
            made = self._made_by.get(maker)
            if made is not None:
                del made.keys[key]
                if not made.keys:
                    del self._made_by[maker]
        if keys:
            self._changed()

    def _forget_overflow(self, unused: Collection[tuple[Maker, float]]) -> None:
        for shared in unused:
            self._overflow.pop(shared).leave()
            place = self._overflow_place.pop(shared, NO_MAKER)
            left = self._overflows_at.pop(place, 0) - 1
            if left > 0:
                self._overflows_at[place] = left
        if unused:  # a caller that cached it has to look it up again: beside a new one it would be a second budget
            self._changed()

    def _install(self, callback: ClientQuotaCallback | None) -> None:
        self.custom_callback = callback is not None
        self._base: ClientQuotaCallback = DefaultQuotaCallback(self._static_default) if callback is None else callback
        self._levels = CUSTOM_LEVEL if callback is not None else self._levels & ~CUSTOM_LEVEL
        if isinstance(self._base, DefaultQuotaCallback):
            self._levels |= self._base.levels
        self._layer()

    def _layer(self) -> None:
        """Put the declared groups in front of the callback."""
        self._callback = GroupCallback(self._declared, self._base) if self._declared else self._base
        self._levels &= ~DECLARED_LEVEL
        if self._declared.limits(self.quota_type):
            self._levels |= DECLARED_LEVEL
        self._changed()

    def _deliver_all(self, changes: Collection[ClientQuotaEntity]) -> None:
        """Report the quotas in force to the callback; a custom one receives each change."""
        if isinstance(self._base, DefaultQuotaCallback) and not self.custom_callback:
            self._base.replace_quotas(self._limits)
            self._levels |= self._limits.levels
            return
        for entity in changes:
            self._deliver(entity, self._limits.bounds.get(entity))

    def _deliver(self, entity: ClientQuotaEntity, bound: float | None) -> None:
        level = level_of(entity)
        if not level:
            raise QuotaError("an entity needs a user, a client-id, or both")
        self._levels |= level
        if bound is None:
            self._callback.remove_quota(self.quota_type, entity)
        else:
            self._callback.update_quota(self.quota_type, entity, bound)

    def _limit(self, tags: Mapping[str, str]) -> float:
        limit = self._callback.quota_limit(self.quota_type, tags)
        return UNLIMITED if limit is None else float(limit)

    def _refresh(self, changes: Collection[ClientQuotaEntity]) -> None:
        """Request the limits of groups that may have new ones: by Kafka's default rule an entity without defaults concerns one group."""
        if (
            self.custom_callback
            or len(changes) * FIND_COST > len(self._groups)
            or any(entity.user_is_default or entity.client_id_is_default for entity in changes)
        ):
            self._ask_bounds()
            return
        for entity in changes:
            group = self._groups.get(group_key(tags_of(entity)))
            if group is not None and (bound := self._limit(group.tags)) != group.bound:
                group.update_bound(bound)

    def _ask_bounds(self) -> None:
        self._bounds_due.clear()
        for group in self._groups.values():
            if self.custom_callback and is_shortened(text for tag in group.key for text in tag):
                self._bounds_due.add(group.key)
                continue
            bound = self._limit(group.tags)
            if bound != group.bound:
                group.update_bound(bound)

    def _changed(self) -> None:
        self.enabled = self._switched_on and self._levels != 0
        self.renew()


def _overflow_tags(bound: float, sharing: Maker) -> dict[str, str]:
    if sharing.user:
        return {OVERFLOW: repr(bound), USER_TAG: user_tag(sharing.user)}
    if any(sharing):
        return {OVERFLOW: repr(bound), LISTENER_TAG: sharing.listener, ADDRESS_TAG: sharing.network}
    return {OVERFLOW: repr(bound)}


class ClientQuotaManager(QuotaGroups[RateGroup]):
    """Byte-rate quotas of one type. Source: Kafka 3.8 `ClientQuotaManager`."""

    def _new_group(self, tags: Mapping[str, str], bound: float, now_ms: int) -> RateGroup:
        return self._make(
            tags,
            bound,
            num_samples=self.num_samples,
            window_ms=self.window_ms,
            cap_ms=self._cap_ms(),
            created_ms=now_ms,
            lazy=self._lazy,
        )

    def _with_parent(self, group: RateGroup, parent: RateGroup | None) -> RateGroup:
        if group.parent is parent:
            return group
        made = self._made_like(group, parent)
        group.copy_to(made)
        return made

    def _cap_ms(self) -> int | None:
        return self._longest_ms
