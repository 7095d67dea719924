"""Reports of a fleet's hub, made up."""

from typing import Any

import msgspec

from proxy.fleet.status import FleetStatus, MemberStatus
from proxy.observe.fleet import FleetReport

OWN = MemberStatus("edge-1", "1.0.0", "delay", 0, has_equal_quotas=True, incarnation="1d0c7be22b51f4a6")
SECOND = MemberStatus("edge-2", "1.0.0", "delay", 600, has_equal_quotas=True, incarnation="52e8a4097ac3d1bf")
JOINED = FleetStatus(
    bus="topic:__sluice_fleet",
    problem=None,
    is_cut_off=False,
    cut_off_ms=1_500,
    lag_ms=72.5,
    echo_age_ms=440,
    members=[OWN, SECOND],
    unreadable_versions=[],
    forged=0,
    replayed=0,
    unreadable=0,
    of_other_fleets=0,
)


def fleet_report(*, age_ms: int = 40, hub_starts: int = 1, **differing: Any) -> FleetReport:
    """Return the report of a member that has joined a fleet of two; `differing`: fields of the status that differ."""
    return FleetReport(msgspec.structs.replace(JOINED, **differing), age_ms, hub_starts)


def member(name: str, silent_ms: int = 100, *, version: str = "1.0.0", has_equal_quotas: bool = True, **differing: bool) -> MemberStatus:
    """Return another member; `differing`: fields about connections."""
    return MemberStatus(name, version, "delay", silent_ms, has_equal_quotas, **differing)
