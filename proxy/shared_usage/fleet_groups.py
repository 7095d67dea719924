"""Groups whose usage is shared with the other members of a fleet, and that assume what cannot be known yet (`assumption`).

How an assumption becomes part of a decision
    The assumed units are recorded in the sample in use right before the decision, and taken back right after it. A decision that delays is
    metered as three records: assumed units, the decision, and the same units taken back. So a plain `QuotaGroup` with the same records has
    the same verdicts. An assumption that delays nobody changes nothing, and is not metered.

    A fetch is checked with an assumption before it is forwarded, so its response is measured without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor
from typing import Any, Final, Self

from metering_format.event_kinds import REMOTE
from metering_format.fleet_notes import ASSUMED_NOW
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.shared_usage.assumption import (
    LAG_MS_MAX,
    NEW_LAGS,
    SILENCE_MS,
    Assumption,
    Fetches,
    FleetUsage,
    is_shared_scope,
    known_within_ms,
)
from proxy.shared_usage.shared_groups import Shared, SharedChildGroup, SharedGroup
from proxy.shared_usage.usage_row import UsageRows
from quota.entity import UNLIMITED
from quota.groups.group import QuotaGroup, Verdict
from quota.sensor import NEVER_MS

UNITS_MAX: Final = 2.0**53
"""A higher bound counts as this one where its product with a time has to be a number."""


class InFleet(Shared):
    """The assumption: a mixin of groups with and without a parent."""

    __slots__ = ()

    _assumption: Assumption

    # Overridden methods of the group

    def record_unchecked(self, amount: float, now_ms: int) -> None:
        """Record `amount` without checking the bound."""
        self._meter_end()
        super().record_unchecked(amount, now_ms)

    def publish(self, now_ms: int) -> None:
        """Publish the usage recorded here."""
        self._meter_end()
        super().publish(now_ms)

    def leave(self) -> None:
        """Publish the remaining usage and stop sharing."""
        self._meter_end()
        super().leave()

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which replaces this one and gets the row."""
        self._meter_end()
        super().copy_to(other)
        other._assumption.continue_from(self._assumption)

    def window_wait_ms(self, now_ms: int) -> int | None:
        """Return the throttle time of the window without an assumption: the schedule that it is the lead of has its own."""
        self._meter_end()
        return super().window_wait_ms(now_ms)

    def throttles_known_ms(self, now_ms: int) -> int:
        """Return when throttles that connections have just left at other members are known here: while the bound is exceeded, after 2 D.

        Clients that leave a member come here sooner than their throttles. Below the bound there is hardly a throttle.
        """
        row = self._row_at(now_ms)
        if row is None or not self._sharing.rows.assumes_at_record:
            return 0
        factor, lag_ms, others = row.elsewhere()
        if not factor or not lag_ms or not others or self.would_throttle_ms(0.0, now_ms) <= 0:
            return 0
        return now_ms + NEW_LAGS * min(lag_ms, LAG_MS_MAX)

    def _record_and_measure(self, amount: float, now_ms: int) -> int:
        self._meter_end()
        self._pull(now_ms, amount)
        self._assume(amount, now_ms)
        units = self._assumption.units if self._sharing.rows.assumes_at_record else 0.0
        throttle_ms = self._measure_with(units, amount, now_ms)
        self._sharing.publish(self, now_ms)
        self._narrow()
        return throttle_ms

    def _predicted(self, extra: float, now_ms: int) -> Verdict:
        self._refresh(now_ms)
        self._assume(extra, now_ms)
        units = max(0.0, self._assumption.units - self._assumption.reserved)
        return QuotaGroup._predicted(self, extra + units, now_ms)._replace(amount=extra)

    def fetch_throttle_ms(self, expected_bytes: float, ahead_bytes: float, now_ms: int) -> int:
        """Return the throttle time of a fetch; what is reserved for older fetches elsewhere need not be assumed as well."""
        chain = list(self._chain())
        for group in chain:
            group._assumption.reserved = ahead_bytes
        throttle_ms = super().fetch_throttle_ms(expected_bytes, ahead_bytes, now_ms)
        for group in chain:
            group._assumption.reserved = 0.0
        return throttle_ms

    def _chain(self) -> Iterator[InFleet]:
        """Yield this group and its parents."""
        group: EnforcedGroup | None = self
        while isinstance(group, InFleet):
            yield group
            group = group.parent

    def _refresh(self, now_ms: int) -> None:
        self._meter_end()
        self._pull(now_ms)
        self._assume(0.0, now_ms)
        self._sharing.publish(self, now_ms)
        self._narrow()

    def _narrow(self) -> None:
        """End the short path also where the assumption, which grows with each record, could reach the bound."""
        super()._narrow()
        if self._assumption.factor:
            self._free = self._with_others(self._free)
            self._sharing.share = self._with_others(self._sharing.share)

    def _with_others(self, free: float) -> float:
        room = (free - self._value - self._assumption.units) / (1.0 + self._assumption.factor)
        return self._value + max(0.0, room) if free > self._value else free

    @property
    def fleet_usage(self) -> FleetUsage | None:
        """What is known and assumed about the other members; None: the group has no row now, or its scope is not shared."""
        sharing = self._sharing
        if sharing.row is None or not is_shared_scope(sharing.rows.scope_key):
            return None
        return FleetUsage(sharing.fleet, self._assumption.units, *sharing.row.elsewhere())

    # The assumption

    def _assume(self, amount: float, now_ms: int) -> None:
        """Set factor and assumed units for a decision on `amount`, which is not recorded yet."""
        assumption = self._assumption
        assumption.factor = assumption.units = 0.0
        sharing = self._sharing
        if sharing.row is None:
            return
        factor, lag_ms, others = sharing.row.elsewhere()
        lag_ms = min(lag_ms, LAG_MS_MAX)
        if not lag_ms or not others:
            return
        before = self._recorded_before + self._value - sharing.fleet
        if assumption.reserved:
            amount = max(0.0, amount - assumption.reserved)  # of older fetches elsewhere
        if sharing.waiting:
            assumption.recent.goes_on(self._span_ms, now_ms)
        silence_ms = min(SILENCE_MS, self._span_ms) if sharing.rows.assumes_at_record else self._span_ms
        used = assumption.recent.used(before, amount, lag_ms, silence_ms, now_ms)
        fetches = self._fetches(before, now_ms)
        is_new = assumption.recent.is_new(NEW_LAGS * lag_ms if fetches is None else known_within_ms(lag_ms), now_ms)
        if not is_new:  # one process, too, decides about a request without one that nobody has sent
            used = max(0.0, used - amount)
        asked = None if fetches is None else assumption.forwarded.note(fetches, lag_ms, waits=any(sharing.waiting_counts()))
        if fetches is None:
            weight = min(self.bound, UNITS_MAX) * lag_ms / 1_000.0
            factor = assumption.lately.factor(factor, before, sharing.fleet, weight, lag_ms, now_ms)
        assumption.factor = factor if asked is None else asked
        assumed = used * assumption.factor
        if fetches is not None and asked is not None:
            assumed += max(0.0, (fetches.here - before) * asked - (fetches.elsewhere - sharing.fleet))
            assumed = max(assumed, assumption.forwarded.unknown(fetches, asked, lag_ms))
        if is_new:
            assumption.factor = max(asked or 0.0, others)
            unknown = 0.0 if fetches is None else assumption.forwarded.unknown(fetches, others, lag_ms, is_new=True)
            at_most = self._room_for_delay(amount, lag_ms, now_ms)
            assumed = max(0.0 if asked is None else assumed, min(max(used * others, unknown), at_most))
        assumption.units = max(0, floor(assumed * sharing.rows.per_unit)) * sharing.rows.units

    def _fetches(self, before: float, now_ms: int) -> Fetches | None:
        """Return the fetches here and elsewhere, of which those here have used `before` so far; None: this is no group of fetches.

        What fetches ask for says more than what they used before: as soon as the window has room all of them go, faster than members can
        know of each other.
        """
        sharing, expected = self._sharing, max(1, self.fetch_answer_bytes)
        rows, fleet = sharing.rows, sharing.rows.fleet
        if rows.assumes_at_record or fleet is None:
            return None
        waiting = sharing.waiting_counts()
        elsewhere = sharing.seen[rows.workers + fleet] / rows.under_way_per_unit
        here = sharing.pending - elsewhere
        asks_here, asks_elsewhere = (sum(waiting) - waiting[fleet]) * expected + here, waiting[fleet] * expected + elsewhere
        return Fetches(now_ms, before + here, sharing.fleet + elsewhere, max(asks_here, expected), asks_elsewhere)

    def assumed_until_ms(self, now_ms: int) -> int:
        """Return when the usage is known that the last prediction assumed."""
        if self._assumption.units <= 0.0 or self._sharing.row is None:
            return NEVER_MS
        return now_ms + max(1, min(self._sharing.row.elsewhere().lag_ms, LAG_MS_MAX))

    def _room_for_delay(self, amount: float, delay_ms: int, now_ms: int) -> float:
        """Return the units that may be added to `amount` without a longer delay than this."""
        total, window_ms = self._peek(now_ms)
        return self.bound * (window_ms + delay_ms) / 1_000.0 - total - amount

    def _measure_with(self, units: float, amount: float, now_ms: int) -> int:
        """Decide on `amount` as if `units` had been recorded; afterwards they are not."""
        if units <= 0.0:
            return QuotaGroup._record_and_measure(self, amount, now_ms)
        self._add(0.0, now_ms)  # a sample begins if it is due, so that all of this happens in one sample
        value = self._value
        self._value = value + units
        throttle_ms = QuotaGroup._record_and_measure(self, amount, now_ms)
        if throttle_ms > 0:
            self._value -= units
            self._meter_begin(units, now_ms)
        else:
            self._value = value + amount
        return throttle_ms

    def _meter_begin(self, units: float, now_ms: int) -> None:
        """Meter assumed units; the decision follows when the caller meters it."""
        rows = self._sharing.rows
        if rows.on_remote is not None:
            amount = round(units * rows.per_unit)
            self._assumption.metered = (amount, now_ms)
            rows.on_remote(self, rows.workers - 1 + ASSUMED_NOW, amount, amount, now_ms, REMOTE)
            self._note_unpublished()

    def _meter_end(self) -> None:
        """Meter that the assumed units of the last decision were taken back, at the time of the decision."""
        amount, time_ms = self._assumption.metered
        if amount:
            self._assumption.metered = (0, 0)
            rows = self._sharing.rows
            assert rows.on_remote is not None
            rows.on_remote(self, rows.workers - 1 + ASSUMED_NOW, -amount, 0, time_ms, REMOTE)


class FleetGroup(InFleet, SharedGroup):
    """A group without a parent."""

    __slots__ = ("_assumption",)

    def __init__(self, tags: Mapping[str, str], bound: float, rows: UsageRows, **settings: Any) -> None:
        self._assumption = Assumption()
        super().__init__(tags, bound, rows, **settings)


class FleetChildGroup(InFleet, SharedChildGroup):
    """A group with a parent; both are shared."""

    __slots__ = ("_assumption",)

    def __init__(self, tags: Mapping[str, str], bound: float, parent: EnforcedGroup, rows: UsageRows, **settings: Any) -> None:
        self._assumption = Assumption()
        super().__init__(tags, bound, parent, rows, **settings)


def fleet_group(
    tags: Mapping[str, str], bound: float = UNLIMITED, parent: EnforcedGroup | None = None, *, rows: UsageRows, **settings: Any
) -> Shared:
    """Return a new group, with or without a parent."""
    return FleetGroup(tags, bound, rows, **settings) if parent is None else FleetChildGroup(tags, bound, parent, rows, **settings)
