"""`sluice run --profile`: the time of the event loop's thread by stage.

cProfile measures it, which makes Python calls about twice as expensive, so only the shares are meaningful.
"""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

STAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "requests: heads, FIFO",
        ("proxy/session/requests/", "proxy/session/in_flight.py", "proxy/session/equal_frames.py", "protocol/request_head.py"),
    ),
    ("responses: heads, verdicts", ("proxy/session/responses/", "proxy/session/throttle/throttle_state.py")),
    ("fetch admission", ("proxy/session/throttle/fetch_admission.py", "proxy/enforcement/groups/fetch_queue.py")),
    ("quotas: record and check", ("quota/", "proxy/enforcement/", "proxy/shared_usage/")),
    ("metering", ("proxy/meter/", "proxy/metering/")),
    ("responses rewritten", ("protocol/", "proxy/session/rewrite.py", "proxy/session/addresses.py")),
    (
        "new connections",
        ("proxy/net/accept/listener.py", "proxy/net/gateway.py", "proxy/net/upstream/connector.py", "proxy/session/session.py"),
    ),
    (
        "pauses, timers, ends",
        ("proxy/net/connection.py", "proxy/net/relay/flow.py", "proxy/net/throttled_channels.py", "proxy/net/connection_deadlines.py"),
    ),
    ("channels", ("proxy/net/",)),  # uvloop's write is compiled, so its time counts for the caller
    (
        "metrics and admin",
        (
            "proxy/observe/",
            "proxy/app/data_path_state.py",
            "proxy/app/control_plane_state.py",
            "proxy/telemetry/client_usage.py",
            "proxy/telemetry/counters.py",
        ),
    ),
    ("log", ("proxy/telemetry/log.py",)),
)
LOOP = "event loop and all else"


class Stage(NamedTuple):
    """One line of the profile."""

    name: str
    calls: int
    seconds: float


class Profiler:
    """Profiles the thread on which it is started."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile()

    def start(self) -> None:
        """Start."""
        self._profile.enable()

    def report(self, requests: int) -> str:
        """Stop; return the profile as text."""
        return render(self.stop(), requests)

    def stop(self) -> list[Stage]:
        """Stop; return the stages, the most expensive first."""
        self._profile.disable()
        seconds: dict[str, float] = {}
        calls: dict[str, int] = {}
        for (path, _, _), (_, count, own_s, _, _) in pstats.Stats(self._profile).stats.items():  # type: ignore[attr-defined]
            stage = _stage_of(path)
            seconds[stage] = seconds.get(stage, 0.0) + own_s
            calls[stage] = calls.get(stage, 0) + count
        return sorted((Stage(name, calls[name], seconds[name]) for name in seconds), key=lambda stage: -stage.seconds)


def render(stages: list[Stage], requests: int) -> str:
    """Return the profile as text: share, seconds, calls and microseconds per request of each stage."""
    total_s = sum(stage.seconds for stage in stages) or 1.0
    lines = [f"{'stage':<28}{'share':>8}{'seconds':>10}{'calls':>12}{'us/request':>12}"]
    for stage in stages:
        per_request = f"{stage.seconds * 1e6 / requests:12.2f}" if requests else f"{'-':>12}"
        lines.append(f"{stage.name:<28}{stage.seconds / total_s:8.1%}{stage.seconds:10.3f}{stage.calls:12d}{per_request}")
    lines.append(f"{requests} requests; Python calls cost about twice as much while they are profiled")
    return "\n".join(lines)


def _stage_of(path: str) -> str:
    try:
        inside = Path(path).resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return LOOP
    for name, prefixes in STAGES:
        if inside.startswith(prefixes):
            return name
    return LOOP
