"""The state of a fleet as one member sees it."""

from __future__ import annotations

import msgspec


class MemberStatus(msgspec.Struct, frozen=True):
    """One member.

    Attributes:
        member: its name, or the number of its incarnation while it has not described itself.
        version, enforcement: version of the program and mode of enforcement; empty while it has not described itself.
        silent_ms: time since its last message; 0 for this member.
        has_equal_quotas: whether its quotas are those of this member.
        shares_connections: whether it shares connections.
        has_equal_limits: whether it shares connections as this member does, with the same limits; also while it has not described itself.
        incarnation: number of its incarnation, the name of its segment of shared usage in metering files.
    """

    member: str
    version: str
    enforcement: str
    silent_ms: int
    has_equal_quotas: bool
    shares_connections: bool = False
    has_equal_limits: bool = True
    incarnation: str = ""


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the fleet.

    Attributes:
        bus: name of the bus.
        problem: why the bus cannot be used; None: it is used.
        is_cut_off: whether own messages do not come back.
        cut_off_ms: sum of the times cut off since the start of the hub.
        lag_ms: average time of a message from here through the bus and back; None: not measured yet.
        clock_ms: time of the bus minus monotonic time, in ms; None: not known yet.
        echo_age_ms: time since the last own message came back; None: none has.
        members: this member first, then the others by name.
        unreadable_versions: versions of messages that this program cannot read, of the last minute.
        forged, replayed, unreadable: number of messages that were not used.
        of_other_fleets: number of messages of fleets with another name.
    """

    bus: str
    problem: str | None
    is_cut_off: bool
    cut_off_ms: int
    lag_ms: float | None
    clock_ms: int | None = None
    echo_age_ms: int | None
    members: list[MemberStatus]
    unreadable_versions: list[int]
    forged: int
    replayed: int
    unreadable: int
    of_other_fleets: int
