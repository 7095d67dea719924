"""Evaluates whether each client kept its quota, from the figures that the demo prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from proxy.demo.clients.cast import BURST_SECONDS, Role
from proxy.demo.judgement.model import predict
from proxy.demo.judgement.watcher import GroupSeen
from proxy.demo.series import SPAN_MS, Series

LAST_SPAN_RATIO_MAX: Final = 1.15
LAST_REQUEST_SPAN_RATIO_MAX: Final = 1.25
"""Tolerance for request time: it is known only after it is used, and no client waits longer than a window for it."""
PACED_TIME_RATIO_MAX: Final = 1.1
"""Tolerance for request time with a schedule: a request may take longer than the time that it reserves."""
MODEL_DISTANCE_MAX: Final = 0.1
"""Tolerance for connections: a refused connection has no verdict to recompute, so their number is compared with the model. So is that of
the last ten seconds, which may have a part of a burst, as in Kafka."""
SEEN_SHARE_MIN: Final = 0.9
"""Minimum share of verdicts that are read: Sluice keeps a group's last few only, so on a busy machine some are dropped before a read."""


@dataclass(frozen=True)
class Judgement:
    """The evaluation of one client.

    Attributes:
        passed: amount that passed: the larger of Sluice's count and the client's.
        predicted: amount that passes in each second, by Kafka's arithmetic for the offered load.
        allowed: maximum amount that may pass: bound x (elapsed + burst) + one request at each proxy; None: no quota.
        last_rate: amount per second in the last ten seconds.
        verdicts, equal: number of throttles that were read from Sluice, and of those with an equal recomputed throttle time in ms.
        unseen: number of throttles that Sluice dropped before they were read.
        refused: number of refused connections.
        parts: amount that passed at each proxy, if there are several.
        faults: descriptions of failed checks; empty: all passed.
        is_paced: whether a schedule enforces the quota; there are no verdicts then.
    """

    role: Role
    elapsed_s: float
    passed: float
    predicted: tuple[float, ...]
    allowed: float | None
    last_rate: float
    verdicts: int
    equal: int
    unseen: int
    refused: int
    parts: tuple[float, ...]
    faults: tuple[str, ...]
    is_paced: bool = False

    @property
    def is_good(self) -> bool:
        """Whether all checks passed."""
        return not self.faults


def measured(role: Role, client: Series, group: GroupSeen) -> Series:
    """Return the amounts over time: the client's count, or Sluice's if only Sluice knows the cost of a request."""
    if not role.is_charged_by_sluice:
        return client
    group.series.start_ms = client.start_ms
    return group.series


def judge(role: Role, client: Series, group: GroupSeen, seconds: int, parts: Sequence[float] = ()) -> Judgement:
    """Evaluate one client of a run.

    Args:
        role: the client.
        client: its own count.
        group: Sluice's count.
        seconds: duration of the run.
        parts: amount that passed at each proxy, if there are several.
    """
    places = len(parts) or 1
    series = measured(role, client, group)
    elapsed_s = max((series.last_ms - series.start_ms) / 1_000, float(seconds))
    passed = sum(parts) or max(group.recorded, series.total)
    amount = passed / max(client.count, 1)
    amount = amount if role.is_charged_by_sluice else round(amount)
    burst_s = BURST_SECONDS if group.burst_ms is None else group.burst_ms / 1_000
    allowed = None if role.bound is None else role.bound * (elapsed_s + burst_s) + places * amount
    if allowed is not None and group.burst_ms is not None and role.is_charged_by_sluice:
        allowed *= PACED_TIME_RATIO_MAX
    end_ms = series.start_ms + seconds * 1_000
    last_rate = series.between(end_ms - SPAN_MS, end_ms) * 1_000 / SPAN_MS
    predicted = predict(role.quota_type, role.bound, amount, role.interval_ms, seconds, places, group.burst_ms)
    model_rate = sum(predicted[-SPAN_MS // 1_000 :]) * 1_000 / SPAN_MS
    faults = _faults(role, passed, allowed, (last_rate, model_rate), group)
    if role.quota_type == "Connection" and abs(passed - sum(predicted)) > MODEL_DISTANCE_MAX * passed:
        faults += (f"the model lets {sum(predicted):.0f} in",)
    faults += tuple(f"nothing passed at proxy {number}" for number, part in enumerate(parts, 1) if not part)
    return Judgement(
        role=role,
        elapsed_s=elapsed_s,
        passed=passed,
        predicted=tuple(predicted),
        allowed=allowed,
        last_rate=last_rate,
        verdicts=len(group.verdicts),
        equal=group.equal,
        unseen=group.unseen,
        refused=group.refused,
        parts=tuple(parts),
        faults=faults,
        is_paced=group.burst_ms is not None,
    )


def _faults(role: Role, passed: float, allowed: float | None, last_rates: tuple[float, float], group: GroupSeen) -> tuple[str, ...]:
    """Return the failed checks; `last_rates` is the rate of the last ten seconds, and that of the model."""
    faults = []
    if passed == 0:
        faults.append("nothing passed")
    if role.bound is None or allowed is None:
        if group.throttle_count:
            faults.append(f"throttled {group.throttle_count} times without a quota")
        return tuple(faults)
    if group.bound != role.bound:
        faults.append(f"Sluice has {group.bound} as its bound")
    if passed > allowed:
        faults.append("more passed than the quota allows")
    ratio_max = LAST_REQUEST_SPAN_RATIO_MAX if role.is_charged_by_sluice else LAST_SPAN_RATIO_MAX
    last_rate, model_rate = last_rates
    by_model = (1 + MODEL_DISTANCE_MAX) * model_rate if role.quota_type == "Connection" else 0.0
    if last_rate > max(ratio_max * role.bound, by_model):
        faults.append(f"the last 10 s are above {ratio_max} x the quota")
    if group.equal < len(group.verdicts):
        faults.append(f"{len(group.verdicts) - group.equal} verdicts come out differently")
    if group.burst_ms is None and len(group.verdicts) < SEEN_SHARE_MIN * group.throttle_count:
        faults.append(f"{group.unseen} verdicts were not seen")
    return tuple(faults)
