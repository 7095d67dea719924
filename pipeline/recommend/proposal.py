"""Computes a bound from the demand: a percentile of the rates, times headroom, rounded up."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from metering_format.event_kinds import MUTATION
from pipeline.recommend.demand import Demand, NeededDemand
from pipeline.whatif.groups import CONNECTION, FORGOTTEN, Group, display_name, plain_user
from pipeline.whatif.pacing import pacing_of
from quota.entity import DEFAULT, UNLIMITED

KEYS: Final = {
    "Produce": "producer_byte_rate",
    "Fetch": "consumer_byte_rate",
    "Request": "request_percentage",
    CONNECTION: "connection_creation_rate",
    MUTATION: "controller_mutation_rate",
}
TENTHS: Final = ("Request", MUTATION)
"""Quota types with bounds that need not be whole numbers."""
SECONDS_FOR_HIGH: Final = 600
SECONDS_FOR_MEDIUM: Final = 60
HIDDEN_SHARE: Final = 0.05
"""Share of active seconds with waits above which the demand counts as unknown."""

Entity = tuple[str | None, str | None, str | None]
"""User, client-id and IP address, as in a quota file."""


class Proposal(msgspec.Struct):
    """A bound for one entity and quota type. Rates are in units per second, of the busiest broker, since each broker has its own quota.

    Attributes:
        pacing: as in a what-if; empty for quota types that have none.
        span_s: seconds that rates were taken over; for a token bucket its capacity, and for a schedule its burst, in seconds of its rate.
        base: the percentile of the rates, before headroom.
    """

    entity: Entity
    group: str
    quota_type: str
    pacing: str
    key: str
    seconds: int
    throttled_seconds: int
    p50: float
    p95: float
    p99: float
    max: float
    percentile: float
    span_s: float
    base: float
    headroom: float
    bound_today: float | None
    bound: float
    confidence: str
    why: str


def propose(demands: Mapping[Group, Demand], percentile: float, headroom: float) -> tuple[list[Proposal], list[str]]:
    """Return a proposal for every group that a quota file can name, and a line for each other group."""
    found: dict[tuple[Entity, str], Proposal] = {}
    left_out = []
    for group, demand in demands.items():
        entity = _entity(group)
        if entity is None:
            left_out.append(f"{display_name(group)} ({group.quota_type}): a quota file has no name for it")
            continue
        proposal = _proposal(entity, demand, percentile, headroom)
        known = found.get((entity, group.quota_type))
        if known is None or proposal.bound > known.bound:
            found[entity, group.quota_type] = proposal
    return sorted(found.values(), key=lambda item: (item.group, item.quota_type)), left_out


def _entity(group: Group) -> Entity | None:
    if group.tags or group.quota_type not in KEYS:
        return None
    if group.quota_type == CONNECTION:
        return (None, None, group.ip) if group.ip else None
    user, client_id = plain_user(group.user) or None, group.client_id or None
    nameless = (user, client_id) == (None, None) or DEFAULT in (user, client_id) or user == FORGOTTEN
    return None if nameless else (user, client_id, None)


def _proposal(entity: Entity, demand: Demand, percentile: float, headroom: float) -> Proposal:
    quota_type = demand.group.quota_type
    _, units = demand.by_second()
    p50, p95, p99 = (float(its) for its in np.percentile(units, [50, 95, 99]))
    base = max(float(np.percentile(demand.rates(), percentile)), 0.0)
    bound = rounded_up(quota_type, base * headroom)
    confidence, why = _confidence(len(units), demand.throttled_seconds)
    is_paced = isinstance(demand, NeededDemand) and demand.is_paced
    if quota_type == MUTATION:
        why += f"; a full bucket holds {bound * demand.span_s:,.0f}"
    return Proposal(
        entity,
        display_name(demand.group),
        quota_type,
        pacing_of(quota_type, paced=is_paced),
        KEYS[quota_type],
        len(units),
        demand.throttled_seconds,
        p50,
        p95,
        p99,
        float(units.max()),
        percentile,
        demand.span_s,
        base,
        headroom,
        demand.bound if demand.bound < UNLIMITED else None,
        bound,
        confidence,
        why,
    )


def _confidence(seconds: int, throttled: int) -> tuple[str, str]:
    if throttled > HIDDEN_SHARE * seconds:
        return "low", f"waits in {throttled} of {seconds} active seconds: what was wanted then is not known"
    if seconds < SECONDS_FOR_MEDIUM:
        return "low", f"only {seconds} active seconds"
    if seconds < SECONDS_FOR_HIGH:
        return "medium", f"{seconds} active seconds"
    return "high", f"{seconds} active seconds, waits in {throttled}"


def rounded_up(quota_type: str, rate: float) -> float:
    """Round up to two significant digits: whole bytes or connections, tenths of a percent or of a mutation."""
    step = 0.1 if quota_type in TENTHS else 1.0
    if rate <= step:
        return step
    unit = max(10.0 ** (math.floor(math.log10(rate)) - 1), step)
    return round(math.ceil(round(rate / unit, 9)) * unit, 1)


def as_rows(proposals: Iterable[Proposal]) -> list[dict[str, Any]]:
    """Return proposals as plain rows for JSON and CSV."""
    return [{name: its for name, its in msgspec.structs.asdict(item).items() if name != "entity"} for item in proposals]
