"""The state of the fleet for /fleet, /readyz and /metrics, from the last report of the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from proxy.fleet.status import FleetStatus, MemberStatus
from proxy.telemetry.status import ReadinessCheck

HEARD_MS: Final = 3_000
"""Age of the last message above which a member counts as silent. A hub that has not reported for this time is silent, too."""
NO_FLEET: Final = "this Sluice belongs to no fleet: its configuration has no [fleet]"

_NOT_REPORTED: Final = FleetStatus(
    bus="",
    problem="the hub has not reported yet",
    is_cut_off=True,
    cut_off_ms=0,
    lag_ms=None,
    echo_age_ms=None,
    members=[],
    unreadable_versions=[],
    forged=0,
    replayed=0,
    unreadable=0,
    of_other_fleets=0,
)


class SharedConnectionsStatus(NamedTuple):
    """What other members have told this one about connections.

    Attributes:
        open_elsewhere: number of their open connections of addresses and principals with a limit; one that counts for both counts twice.
        recorded_elsewhere: connections that they counted and that were recorded here, once for each rate (process, listener, address).
    """

    open_elsewhere: int
    recorded_elsewhere: int


class FleetReport(NamedTuple):
    """The last report of the hub, and what the supervisor knows of the hub.

    Attributes:
        status: the report; None: there was none yet.
        age_ms: age of the report.
        hub_starts: number of starts of the hub.
        connections: what is shared about connections; None: they are not shared.
    """

    status: FleetStatus | None
    age_ms: int
    hub_starts: int
    connections: SharedConnectionsStatus | None = None

    def now(self) -> FleetStatus:
        """Return the state now: ages include that of the report, and a silent hub is a problem."""
        status = self.status
        if status is None:
            return _NOT_REPORTED
        own, *others = status.members
        return msgspec.structs.replace(
            status,
            problem=self._problem_of(status),
            is_cut_off=status.is_cut_off or self._is_hub_silent,
            echo_age_ms=None if status.echo_age_ms is None else status.echo_age_ms + self.age_ms,
            members=[own, *(msgspec.structs.replace(one, silent_ms=one.silent_ms + self.age_ms) for one in others)],
        )

    @property
    def _is_hub_silent(self) -> bool:
        return self.age_ms > HEARD_MS

    def _problem_of(self, status: FleetStatus) -> str | None:
        if self._is_hub_silent:
            return f"the hub has not reported for {self.age_ms // 1_000} s"
        if status.problem is None and status.is_cut_off:
            return "own messages do not come back"
        return status.problem


def heard(members: Sequence[MemberStatus]) -> list[MemberStatus]:
    """Return the members that are not silent."""
    return [member for member in members if _is_heard(member)]


def fleet_page(report: FleetReport, wall_time_s: float) -> Mapping[str, Any]:
    """Return the page /fleet."""
    status = report.now()
    cut_off_since_s = None if not status.is_cut_off or status.echo_age_ms is None else wall_time_s - status.echo_age_ms / 1_000
    fields = msgspec.structs.asdict(status)
    del fields["clock_ms"]  # for metering
    return {
        **fields,
        "members": [{**msgspec.structs.asdict(member), "is_heard": _is_heard(member)} for member in status.members],
        "cut_off_since_s": cut_off_since_s,
        "hub_starts": report.hub_starts,
        "connections": None if report.connections is None else report.connections._asdict(),
    }


def fleet_check(report: FleetReport) -> ReadinessCheck:
    """Return the line of /readyz. It is no condition: a member that is cut off serves its clients, and enforces their quotas."""
    status = report.now()
    if status.is_cut_off:
        return ReadinessCheck("fleet", False, f"cut off: {': '.join(filter(None, (status.bus, status.problem)))}", required=False)
    count = len(heard(status.members))
    lag = "not measured yet" if status.lag_ms is None else f"{status.lag_ms:.0f} ms"
    return ReadinessCheck("fleet", True, f"{count} {'member' if count == 1 else 'members'}, lag {lag}, {status.bus}", required=False)


def _is_heard(member: MemberStatus) -> bool:
    return member.silent_ms <= HEARD_MS
