"""Byte-rate quotas whose groups change between a window and a schedule at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.paced.factory import PacedMaker
from proxy.enforcement.paced.group import PacedGroup
from quota.callbacks.callback import DefaultQuotaCallback
from quota.entity import ClientQuotaEntity, ClientQuotaType
from quota.manager import ClientQuotaManager
from quota.paced_schedule import MS_NS

OnLead = Callable[[EnforcedGroup, int, int], None]
"""Called with a group that gets a schedule, the throttle time of its window in ms, and the time in ms."""
OnRescaled = Callable[[EnforcedGroup, int], None]
"""Called with a group whose schedule was rescaled, and the time in ms."""
Replaced = dict[EnforcedGroup, EnforcedGroup]
"""Groups with another pacing, each with the group that continues it."""


class PaceableManager(ClientQuotaManager[EnforcedGroup]):
    """The manager of one byte rate. `make` decides which of its groups are paced."""

    def __init__(self, quota_type: ClientQuotaType, make: PacedMaker, **settings: Any) -> None:
        super().__init__(quota_type, make, **settings)
        self._maker = make
        make.rule = self._rule_of

    def _rule_of(self, tags: Mapping[str, str]) -> ClientQuotaEntity | None:
        found = self._base.rule(tags) if isinstance(self._base, DefaultQuotaCallback) else None
        return None if found is None else found[0]

    @property
    def depends_on_quotas(self) -> bool:
        """Whether a change of quotas or of declared groups may change the pacing of a group."""
        return self._maker.depends_on_quotas

    def rescale(self, now_ms: int, on_rescaled: OnRescaled | None) -> None:
        """Rescale the schedules of the groups whose bound has changed. With an operator's callback, which may change one at any time, they
        keep their leads.
        """
        groups, self._maker.rescales[:] = list(self._maker.rescales), []
        for group in groups:
            if self.custom_callback:
                group.keep_lead()
            elif group.rescale(now_ms) and on_rescaled is not None:
                on_rescaled(group, now_ms)

    def repace(self, now_ms: int, on_lead: OnLead | None) -> Replaced:
        """Give each group the pacing that applies to it now.

        A group and its history continue in a new one. The lead of a new schedule begins as the throttle time of the window, so nobody gets
        a burst by the change and nothing that was used is forgotten; the window of a paced group has recorded what passed.
        """
        replaced: Replaced = {}
        due = [key for key, group in self._groups.items() if self._is_due(group)]
        waits_ms = {key: _window_wait_ms(self._groups[key], now_ms, on_lead) for key in due}
        before = {key: self._groups[key] for key in due}
        for key in due:
            if self._groups[key].parent is None:
                self._groups[key] = self._continued(self._groups[key])
        for key in due:
            group = self._link(key, now_ms) if before[key].parent is not None else self._groups[key]
            _begin_lead(group, waits_ms[key], now_ms)
            replaced[before[key]] = group
        for shared, group in list(self._overflow.items()):
            if self._is_due(group):
                wait_ms = _window_wait_ms(group, now_ms, on_lead)
                replaced[group] = self._overflow[shared] = self._continued(group)
                _begin_lead(self._overflow[shared], wait_ms, now_ms)
        if replaced:
            self._changed()
        return replaced

    def _is_due(self, group: EnforcedGroup) -> bool:
        return group.is_paced != self._maker.is_paced(group.tags)

    def _continued(self, group: EnforcedGroup) -> EnforcedGroup:
        made = self._made_like(group, None)
        group.copy_to(made)
        return made


def _window_wait_ms(group: EnforcedGroup, now_ms: int, on_lead: OnLead | None) -> int:
    """Return the throttle time of a group by its window, recorded as a decision without usage; 0: it had a schedule, or no usage yet."""
    wait_ms = None if group.is_paced else group.window_wait_ms(now_ms)
    if wait_ms is None:
        return 0
    if on_lead is not None:
        on_lead(group, wait_ms, now_ms)
    return wait_ms


def _begin_lead(group: EnforcedGroup, wait_ms: int, now_ms: int) -> None:
    if isinstance(group, PacedGroup) and wait_ms:
        group.schedule.virtual_ns = (now_ms + wait_ms) * MS_NS
    if group.metered_bound is not None:
        group.metered_bound += 0.0  # an equal number, and another object: the meter describes the group again before its next decision
