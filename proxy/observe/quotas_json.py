"""The page /quotas: every live group with its rule, its bound and its last verdicts, exact to the bit."""

import json
import math
from typing import Any

from proxy.observe.snapshot import GroupView, Snapshot
from quota.group import Verdict
from quota.mutation_group import MutationGroup


def quotas_json(snapshot: Snapshot) -> bytes:
    """Return the page. A float is written so that reading it gives the same bits; unlimited is null."""
    head = _encoded(
        {
            "mode": snapshot.mode,
            "scope": snapshot.scope,
            "now_ms": snapshot.now_ms,
            "switches": {target: mode.value for target, mode in snapshot.switches.items()},
            "exempt": snapshot.exempt,
            "source": snapshot.source._asdict(),
            "groups_left_out": snapshot.groups_left_out,
        }
    )
    # Group by group: encoding thousands in one call would keep the interpreter from the event loop for all of it.
    groups = ",".join([_encoded(_group(view, snapshot.now_ms)) for view in snapshot.groups])
    return f'{head[:-1]},"groups":[{groups}]}}'.encode()


_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _group(view: GroupView, now_ms: int) -> dict[str, Any]:
    group = view.group
    observed = group.rate(now_ms)
    tokens = {"tokens": _number(group.tokens(now_ms))} if isinstance(group, MutationGroup) else {}
    return {
        "broker": view.broker,
        "quota_type": view.quota_type,
        "tags": dict(group.tags),
        "rule": view.rule,
        **({} if group.parent is None else {"parent": dict(group.parent.tags)}),
        "bound": _number(group.bound) if view.is_limited else None,
        "observed": _number(observed),
        "utilization": _number(observed / group.bound) if view.is_limited and group.bound > 0 else None,
        "throttled_until_ms": group.throttled_until_ms,
        "throttle_count": group.throttle_count,
        "throttle_ms_total": group.throttle_ms_total,
        "recorded_total": _number(group.recorded_total),
        **tokens,
        "verdicts": [_verdict(verdict) for verdict in tuple(group.verdicts)],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "time_ms": verdict.time_ms,
        "amount": _number(verdict.amount),
        "observed": _number(verdict.observed),
        "bound": _number(verdict.bound),
        "window_ms": verdict.window_ms,
        "throttle_ms": verdict.throttle_ms,
    }


def _number(value: float) -> float | str:
    """Return `value`, or its name where JSON has no number for it."""
    return value if math.isfinite(value) else str(value)
