"""The values above the groups of the live page: state, processes, connections, latencies, and the fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxy.observe.fleet import fleet_check, fleet_page
from proxy.observe.live.table import rounded
from proxy.observe.metrics.api_names import API_NAMES
from proxy.observe.snapshot import Snapshot, WorkerProcess
from proxy.observe.state import ControlState
from proxy.telemetry.latency import SHIFT
from proxy.telemetry.status import IpRate, ReadinessCheck
from quota.names import kept_name

QUANTILES: Final = (0.5, 0.99)


class Rates:
    """Differences of totals between two heads: processor time, requests and bytes for each second."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._now_ms = 0

    def of(self, totals: Mapping[str, float], now_ms: int) -> dict[str, float | None]:
        """Return units per second since the last call; None at the first call, and where a total is new."""
        seconds = (now_ms - self._now_ms) / 1_000
        before, self._totals, self._now_ms = self._totals, dict(totals), now_ms
        return {key: rounded((total - before[key]) / seconds) if seconds > 0 and key in before else None for key, total in totals.items()}


def head_of(control: ControlState, figures: Snapshot, process: WorkerProcess, rates: Rates, ips: Sequence[IpRate]) -> dict[str, Any]:
    """Return the values; on the event loop's thread.

    Args:
        figures: without groups and clients.
        process: CPU, memory and lag of the process with the admin port.
        rates: of the head before.
        ips: the addresses with the highest rates of connections.
    """
    workers = [one.process for one in figures.workers if one.process is not None]
    counted, traffic = figures.counters, figures.traffic
    totals = {
        "cpu": process.cpu_s + sum(one.cpu_s for one in workers),
        "requests": traffic.requests,
        "bytes_from_clients": traffic.bytes_from_clients,
        "bytes_from_brokers": traffic.bytes_from_brokers,
    }
    now_ms = figures.now_ms
    processes = [process, *workers]
    return {
        "mode": figures.mode,
        "scope": figures.scope,
        "now_ms": now_ms,
        "time_s": round(control.wall_time_s(), 3),
        "state": _state(control, figures),
        "source": _source(figures),
        "callback": figures.callback.class_name and {"class": figures.callback.class_name, "error": figures.callback.error},
        "switches": {kept_name(target): mode.value for target, mode in figures.switches.items()},
        "pacing": {kept_name(target): pacing.value for target, pacing in figures.pacing.items()},
        "exempt": [kept_name(principal) for principal in figures.exempt],
        "certificates": dict(counted.certificate_expiries_s),
        "lag_ms": {
            "last": rounded(max(one.lag_last_ms for one in processes)),
            "max": rounded(max(one.lag_max_ms for one in processes)),
        },
        "memory": {
            "resident_bytes": sum(one.resident_bytes for one in processes),
            "buffered_bytes": counted.buffered_bytes,
            "buffer_bytes_max": counted.buffer_bytes_max,
        },
        "rates": rates.of(totals, now_ms),
        "workers": [
            {"number": one.number, "is_stale": one.is_stale, "connections": one.connections_open, **_process(one.process)}
            for one in figures.workers
        ],
        "fleet": None if figures.fleet is None else _fleet(fleet_page(figures.fleet, control.wall_time_s())),
        "connections": _connections(figures, ips),
        "latencies": [_latency(key, row) for key, row in sorted(counted.latencies.rows.items()) if any(row)],
    }


def _state(control: ControlState, figures: Snapshot) -> dict[str, Any]:
    checks: list[ReadinessCheck] = [*figures.readiness, *([] if figures.fleet is None else [fleet_check(figures.fleet)])]
    is_ready = all(check.ok for check in checks if check.required)
    name = "not ready" if not is_ready else "ready" if all(check.ok for check in checks) else "degraded"
    return {
        "name": name,
        "checks": [[check.name, check.ok, check.detail] for check in checks],
        "logins": [[login.name, login.state, login.detail] for login in control.logins()],
    }


def _source(figures: Snapshot) -> dict[str, Any]:
    source = figures.source
    age_ms = None if not source.last_success_s else max(0, figures.now_ms - source.last_success_ms)
    return {"source": source.source, "entries": source.entries, "age_ms": age_ms, "error": source.error, "rejected": source.rejected}


def _process(process: WorkerProcess | None) -> dict[str, Any]:
    if process is None:
        return {}
    return {"resident_bytes": process.resident_bytes, "lag_max_ms": rounded(process.lag_max_ms), "cpu_s": round(process.cpu_s, 1)}


def _fleet(page: Mapping[str, Any]) -> dict[str, Any]:
    shown = ("member", "silent_ms", "is_heard", "has_equal_quotas")
    members = [{key: member[key] for key in shown if key in member} for member in page["members"]]
    return {**{key: page[key] for key in ("bus", "problem", "is_cut_off", "lag_ms")}, "members": members}


def _connections(figures: Snapshot, ips: Sequence[IpRate]) -> dict[str, Any]:
    counted, admission = figures.counters, figures.admission
    return {
        "open": counted.connections_open,
        "held": admission.held,
        "accept_rate": rounded(admission.broker_accept_rate),
        "failing_ips": admission.failing_ips,
        "listeners": [
            [
                one.listener,
                one.connections,
                rounded(one.accept_rate),
                rounded(one.throttle_ms),
                rounded(one.ip_throttle_ms),
                rounded(one.blocked_ratio),
            ]
            for one in admission.listeners
        ],
        "accepted": dict(counted.connections_accepted),
        "closes": dict(counted.closes),
        "logins": [[mechanism, outcome, count] for (mechanism, outcome), count in sorted(counted.logins.items())],
        "ips": [[one.ip, one.broker, rounded(one.rate), one.bound, one.connections] for one in ips],
        "upstream_connects": counted.upstream_connects,
        "upstream_connect_failures": counted.upstream_connect_failures,
    }


def _latency(key: int, row: Sequence[int]) -> list[Any]:
    """Return API, number of responses, and the upper edges in ms of the buckets that hold the quantiles."""
    counts = list(row)
    total = sum(counts)
    return [API_NAMES[key], total, *(quantile_ms(counts, total, share) for share in QUANTILES)]


def quantile_ms(counts: Sequence[int], total: int, share: float) -> float | None:
    """Return the upper edge of the bucket in which a share of `total` is reached, in ms."""
    left = share * total
    for at, count in enumerate(counts):
        left -= count
        if left <= 0:
            return rounded((1 << SHIFT + at) / 1e6)
    return None
