"""A snapshot of the proxy: lists copied at once on the event loop's thread, for work in another thread."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.rule import group_name, rule_of
from proxy.observe.shown import PacedState
from proxy.observe.state import ControlState, DataState, ProxyState
from proxy.shared_usage.assumption import FleetUsage
from proxy.shared_usage.fleet_groups import InFleet
from proxy.shared_usage.paced.groups import SharedPacedGroup
from proxy.shared_usage.shared_groups import Shared
from proxy.telemetry.counters import Counters
from proxy.telemetry.status import AdmissionStatus, CallbackStatus, ReadinessCheck, SourceStatus, Traffic
from quota.entity import UNLIMITED
from quota.groups.mutation_group import MutationGroup
from quota.paced_schedule import MS_NS
from quota.request_time import ClientRequestQuotaManager

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.enforcement.pacing import Pacing
    from proxy.enforcement.switches import SwitchMode
    from proxy.observe.fleet import FleetReport
    from proxy.observe.shown import ShownGroup, ShownManager, ShownUsage, Urgency
    from proxy.observe.state import QuotaManager
    from proxy.telemetry.loop_lag import LoopLag
    from quota.groups.group import QuotaGroup

GROUPS_MAX: Final = 50_000
"""More groups are counted, without series."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class GroupView(NamedTuple):
    """A live group with its broker and quota type: a `ShownGroup`. Reading never changes the group."""

    broker: str
    quota_type: str
    manager: QuotaManager
    group: QuotaGroup | MutationGroup

    @property
    def name(self) -> str:
        """The common tags of the members."""
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
        """Return the sort key for the selection of groups; changes no state."""
        group = self.group
        return group.throttled_until_ms > now_ms, group.bound < UNLIMITED, group.recorded_total

    @property
    def measures_all(self) -> bool:
        """Whether its rate is that of all processes; otherwise of this one only."""
        return isinstance(self.group, Shared) and self.group.measures_all

    @property
    def own_total(self) -> float:
        """Units that this process recorded since the start."""
        return self.group.own_total if isinstance(self.group, Shared) else self.group.recorded_total

    @property
    def fleet_usage(self) -> FleetUsage | None:
        """What is known and assumed about other members of the fleet; None: there is no fleet, or the group is not shared."""
        return self.group.fleet_usage if isinstance(self.group, InFleet | SharedPacedGroup) else None

    def rate(self, now_ms: int) -> float:
        """Return units per second; changes no state."""
        return self.group.rate(now_ms)

    def tokens(self, now_ms: int) -> float | None:
        """Return the balance of a token bucket; None: it is not one. Changes no state."""
        return self.group.tokens(now_ms) if isinstance(self.group, MutationGroup) else None

    def paced(self, now_ms: int) -> PacedState | None:
        """Return the schedule of a paced group; None: it is not one. Changes no state."""
        group = self.group
        if not isinstance(group, PacedGroup):
            return None
        return PacedState(group.schedule.burst_ns // MS_NS, group.lead_ms(now_ms), len(group.line))


class ManagerView(NamedTuple):
    """A live manager with its broker and its groups at that time: a `ShownManager`."""

    broker: str
    quota_type: str
    manager: QuotaManager
    groups: list[Any]

    def view(self, group: QuotaGroup | MutationGroup) -> GroupView:
        """Return the view of one group."""
        return GroupView(self.broker, self.quota_type, self.manager, group)

    def views(self) -> Iterator[GroupView]:
        """Yield the views of the groups."""
        return map(self.view, self.groups)

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return len(self.groups)

    @property
    def groups_overflowed(self) -> int:
        """How often a client had to share a group, because there were too many."""
        return self.manager.groups_overflowed

    @property
    def exempt_total(self) -> float | None:
        """Exempt request time in percent-seconds since the start; None: this type has none."""
        manager = self.manager
        return manager.exempt_request_time.recorded_total if isinstance(manager, ClientRequestQuotaManager) else None

    def exempt_rate(self, now_ms: int) -> float:
        """Return the current exempt request time in percent, 0 when the type has none; changes no state."""
        manager = self.manager
        return manager.exempt_request_time.rate(now_ms) if isinstance(manager, ClientRequestQuotaManager) else 0.0

    def rest_rate(self) -> float:
        """Return 0: no group is left out."""
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
    """Whether it did not answer recently, so that these are its last values."""
    process: WorkerProcess | None
    """None: it has never answered."""
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
    """The last one is that of all clients that are not counted separately."""
    traffic: Traffic
    source: SourceStatus
    callback: CallbackStatus
    readiness: list[ReadinessCheck]
    admission: AdmissionStatus
    switches: Mapping[str, SwitchMode]
    exempt: tuple[str, ...]
    pacing: Mapping[str, Pacing]
    workers: Sequence[WorkerFigures] = ()
    """Empty for a single process."""
    worker_stalls: int = 0
    """Number of lags of all workers that were long enough to log the stack."""
    fleet: FleetReport | None = None
    """None without a fleet."""

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return sum(view.group_count for view in self.managers)

    @property
    def groups(self) -> Iterator[ShownGroup]:
        """Yield the groups, at most 50,000, each made on demand, since making all at once would block the event loop."""
        return islice((view for manager in self.managers for view in manager.views()), GROUPS_MAX)


def take_snapshot(state: ProxyState) -> Snapshot:
    """Return the current state; on the event loop's thread, where groups are added and removed."""
    return control_snapshot(state)._replace(
        managers=take_managers(state), usages=state.usages.snapshot(), traffic=state.traffic(), callback=state.callback()
    )


def control_snapshot(control: ControlState) -> Snapshot:
    """Return a snapshot of the state that exists once, without groups, clients and traffic; on the event loop's thread."""
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
        control.pacing(),
        fleet=control.fleet(),
    )


def take_managers(state: DataState) -> list[ManagerView]:
    """Return every manager with its groups; on the event loop's thread."""
    return [
        ManagerView(broker.label, quota_type.value, manager, list(manager.groups()))
        for broker in state.brokers()
        for quota_type, manager in broker.managers.items()
    ]


def process_figures(lag: LoopLag) -> WorkerProcess:
    """Return CPU, memory and lag of this process."""
    resident_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return WorkerProcess(time.process_time(), resident_bytes, lag.last_ms, lag.max_ms(), lag.stalls)
