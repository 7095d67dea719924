"""What one look takes along: lists copied on the loop's thread in one step, to be worked on in another."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.enforcement.rule import group_name, rule_of
from proxy.observe.state import ProxyState
from proxy.telemetry.counters import Counters, Usage
from proxy.telemetry.status import AdmissionStatus, CallbackStatus, ReadinessCheck, SourceStatus, Traffic
from quota.entity import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.enforcement.switches import SwitchMode
    from proxy.observe.state import QuotaManager
    from quota.groups.group import QuotaGroup
    from quota.groups.mutation_group import MutationGroup

GROUPS_MAX: Final = 50_000
"""More groups are counted, and not looked at for series."""


class GroupView(NamedTuple):
    """A live group and where it belongs. The group is the live object: what is read from it never changes it."""

    broker: str
    quota_type: str
    manager: "QuotaManager"
    group: "QuotaGroup | MutationGroup"

    @property
    def name(self) -> str:
        """What the members have in common."""
        return group_name(self.group.tags)

    @property
    def is_limited(self) -> bool:
        """Whether it has a bound."""
        return self.group.bound < UNLIMITED

    @property
    def rule(self) -> str:
        """The entity whose quota applies."""
        return rule_of(self.group.tags, self.manager.rules, custom_callback=self.manager.custom_callback, limited=self.is_limited)


class ManagerView(NamedTuple):
    """A manager and where it belongs; the live object, and the groups that it had."""

    broker: str
    quota_type: str
    manager: "QuotaManager"
    groups: "list[Any]"

    def view(self, group: "QuotaGroup | MutationGroup") -> GroupView:
        """Return one of the groups with where it belongs."""
        return GroupView(self.broker, self.quota_type, self.manager, group)


class Snapshot(NamedTuple):
    """Everything that a page is made of."""

    mode: str
    scope: str
    now_ms: int
    counters: Counters
    broker_threads: int | None
    managers: list[ManagerView]
    usages: list[Usage]
    traffic: Traffic
    source: SourceStatus
    callback: CallbackStatus
    readiness: list[ReadinessCheck]
    admission: AdmissionStatus
    switches: "Mapping[str, SwitchMode]"
    exempt: tuple[str, ...]

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return sum(len(view.groups) for view in self.managers)

    @property
    def groups(self) -> Iterator[GroupView]:
        """The groups, at most 50,000, each put together when it is asked for: all at once would hold the loop up."""
        return islice((view.view(group) for view in self.managers for group in view.groups), GROUPS_MAX)


def take_snapshot(state: ProxyState) -> Snapshot:
    """Return how things stand; on the loop's thread, since groups come and go there."""
    managers = [
        ManagerView(broker.label, quota_type.value, manager, list(manager.groups()))
        for broker in state.brokers()
        for quota_type, manager in broker.managers.items()
    ]
    return Snapshot(
        state.mode(),
        state.scope(),
        state.now_ms(),
        state.counters,
        state.broker_threads(),
        managers,
        state.usages.snapshot(),
        state.traffic(),
        state.quota_source(),
        state.callback(),
        list(state.readiness()),
        state.admission(),
        state.switches(),
        tuple(sorted(state.exempt())),
    )
