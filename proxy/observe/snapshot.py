"""A snapshot of the proxy: lists copied in one step on the loop's thread, for work in another thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.enforcement.rule import group_name, rule_of
from proxy.observe.state import ControlState, DataState, ProxyState
from proxy.shared_usage.shared_groups import Shared
from proxy.telemetry.counters import Counters
from proxy.telemetry.status import AdmissionStatus, CallbackStatus, ReadinessCheck, SourceStatus, Traffic
from quota.entity import UNLIMITED
from quota.groups.mutation_group import MutationGroup
from quota.request_time import ClientRequestQuotaManager

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.enforcement.switches import SwitchMode
    from proxy.observe.shown import ShownGroup, ShownManager, ShownUsage, Urgency
    from proxy.observe.state import QuotaManager
    from quota.groups.group import QuotaGroup

GROUPS_MAX: Final = 50_000
"""More groups are counted, and not looked at for series."""


class GroupView(NamedTuple):
    """A live group with its broker and quota type: a `ShownGroup`. Reading from the live group never changes it."""

    broker: str
    quota_type: str
    manager: QuotaManager
    group: QuotaGroup | MutationGroup

    @property
    def name(self) -> str:
        """What the members have in common."""
        return group_name(self.group.tags)

    @property
    def bound(self) -> float:
        """Units per second."""
        return self.group.bound

    @property
    def is_limited(self) -> bool:
        """Whether it has a bound."""
        return self.group.bound < UNLIMITED

    @property
    def rule(self) -> str:
        """The entity whose quota applies."""
        return rule_of(self.group.tags, self.manager.rules, custom_callback=self.manager.custom_callback, limited=self.is_limited)

    def urgency(self, now_ms: int) -> Urgency:
        """Return what groups are chosen by where there are too many; changes nothing."""
        group = self.group
        return group.throttled_until_ms > now_ms, group.bound < UNLIMITED, group.recorded_total

    @property
    def measures_all(self) -> bool:
        """Whether its rate is that of all processes; otherwise of this one alone."""
        return isinstance(self.group, Shared) and self.group.measures_all

    @property
    def own_total(self) -> float:
        """Units that this process recorded itself since the start."""
        return self.group.own_total if isinstance(self.group, Shared) else self.group.recorded_total

    def rate(self, now_ms: int) -> float:
        """Return units per second; changes nothing."""
        return self.group.rate(now_ms)

    def tokens(self, now_ms: int) -> float | None:
        """Return the balance of a token bucket; None: it is none. Changes nothing."""
        return self.group.tokens(now_ms) if isinstance(self.group, MutationGroup) else None


class ManagerView(NamedTuple):
    """A live manager with its broker and the groups that it had: a `ShownManager`."""

    broker: str
    quota_type: str
    manager: QuotaManager
    groups: list[Any]

    def view(self, group: QuotaGroup | MutationGroup) -> GroupView:
        """Return one of the groups with where it belongs."""
        return GroupView(self.broker, self.quota_type, self.manager, group)

    def views(self) -> Iterator[GroupView]:
        """Return the groups with where they belong."""
        return map(self.view, self.groups)

    @property
    def group_count(self) -> int:
        """How many groups there were."""
        return len(self.groups)

    @property
    def groups_overflowed(self) -> int:
        """How often a client had to share a group, because there were too many."""
        return self.manager.groups_overflowed

    @property
    def exempt_total(self) -> float | None:
        """Request time that no quota applies to, in percent-seconds since the start; None: this type has none."""
        manager = self.manager
        return manager.exempt_request_time.recorded_total if isinstance(manager, ClientRequestQuotaManager) else None

    def exempt_rate(self, now_ms: int) -> float:
        """Return the same in percent now, 0 where the type has none; changes nothing."""
        manager = self.manager
        return manager.exempt_request_time.rate(now_ms) if isinstance(manager, ClientRequestQuotaManager) else 0.0

    def rest_rate(self) -> float:
        """Nothing is left out."""
        return 0.0


class WorkerProcess(NamedTuple):
    """CPU and memory of a worker, and the lag of its loop."""

    cpu_s: float
    resident_bytes: int
    lag_last_ms: float
    lag_max_ms: float
    stalls: int


class WorkerFigures(NamedTuple):
    """The state of a worker that should run."""

    number: int
    is_stale: bool
    """It did not answer of late: these are its last figures."""
    process: WorkerProcess | None
    """None: it never answered."""
    connections_open: int


class Snapshot(NamedTuple):
    """The data of one page."""

    mode: str
    scope: str
    now_ms: int
    counters: Counters
    broker_threads: int | None
    managers: Sequence[ShownManager]
    usages: Sequence[ShownUsage]
    """The last one is of all those that are not counted one by one."""
    traffic: Traffic
    source: SourceStatus
    callback: CallbackStatus
    readiness: list[ReadinessCheck]
    admission: AdmissionStatus
    switches: Mapping[str, SwitchMode]
    exempt: tuple[str, ...]
    workers: Sequence[WorkerFigures] = ()
    """None where one process does everything."""
    worker_stalls: int = 0
    """Lags of all workers that were long enough to have their stack logged."""

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return sum(view.group_count for view in self.managers)

    @property
    def groups(self) -> Iterator[ShownGroup]:
        """The groups, at most 50,000, each put together when it is asked for: all at once would hold the loop up."""
        return islice((view for manager in self.managers for view in manager.views()), GROUPS_MAX)


def take_snapshot(state: ProxyState) -> Snapshot:
    """Return how things stand; on the loop's thread, since groups come and go there."""
    return control_snapshot(state)._replace(
        managers=take_managers(state), usages=state.usages.snapshot(), traffic=state.traffic(), callback=state.callback()
    )


def control_snapshot(control: ControlState) -> Snapshot:
    """Return a snapshot of what is there once, without groups, clients and traffic; on the loop's thread."""
    return Snapshot(
        control.mode(),
        control.scope(),
        control.now_ms(),
        control.counters,
        control.broker_threads(),
        (),
        (),
        Traffic(0, 0, 0, 0, 0),
        control.quota_source(),
        CallbackStatus(None, 0, None),
        list(control.readiness()),
        control.admission(),
        control.switches(),
        tuple(sorted(control.exempt())),
    )


def take_managers(state: DataState) -> list[ManagerView]:
    """Return every manager with the groups that it has; on the loop's thread."""
    return [
        ManagerView(broker.label, quota_type.value, manager, list(manager.groups()))
        for broker in state.brokers()
        for quota_type, manager in broker.managers.items()
    ]
