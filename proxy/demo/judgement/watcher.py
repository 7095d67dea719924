"""Reads /quotas and /connections several times a second, and keeps every verdict of Sluice."""

import http.client
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from proxy.base.clock import now_ms
from proxy.demo.judgement.model import REQUEST_THROTTLE_MS_MAX
from proxy.demo.series import Series
from quota.throttle import narrow_to_int32, throttle_time_ms

POLL_SECONDS: Final = 0.05
"""Interval of the reads. A group keeps its last 16 verdicts, and no client of the demo gets as many in this time."""

_REFUSED_COUNT: Final = re.compile(r'^kafka_sluice_closes_total\{reason="ip_connection_rate(?:_unheld)?"\} (\S+)', re.MULTILINE)


class VerdictSeen(NamedTuple):
    """A verdict on /quotas."""

    time_ms: int
    observed: float
    bound: float
    window_ms: int
    throttle_ms: int

    def is_right(self, quota_type: str) -> bool:
        """Whether the recomputed throttle time is equal."""
        throttle_ms = narrow_to_int32(throttle_time_ms(self.observed, self.bound, self.window_ms))
        return self.throttle_ms == (min(throttle_ms, REQUEST_THROTTLE_MS_MAX) if quota_type == "Request" else throttle_ms)


@dataclass
class GroupSeen:
    """The figures of one group from /quotas, or of one address from /connections.

    Attributes:
        burst_ms: burst of the group's schedule, if it is paced; None: it has a window.
        held_now: number of connections above the quota that Sluice holds before it closes them.
        refused: number of connections that were closed for this reason.
    """

    quota_type: str = ""
    bound: float | None = None
    burst_ms: int | None = None
    recorded: float = 0
    series: Series = field(default_factory=Series)
    observed: float = 0.0
    throttle_count: int = 0
    throttled_until_ms: int = 0
    held_now: int = 0
    refused: int = 0
    verdicts: list[VerdictSeen] = field(default_factory=list)

    @classmethod
    def sum_of(cls, parts: Sequence[Self]) -> Self:
        """Return the figures of a group at several proxies as one group; its bound is the largest one."""
        if len(parts) == 1:
            return parts[0]
        bounds = [part.bound for part in parts if part.bound is not None]
        return cls(
            quota_type=max(part.quota_type for part in parts),
            bound=max(bounds, default=None),
            recorded=sum(part.recorded for part in parts),
            series=Series.sum_of([part.series for part in parts]),
            observed=max(part.observed for part in parts),
            throttle_count=sum(part.throttle_count for part in parts),
            throttled_until_ms=max(part.throttled_until_ms for part in parts),
            held_now=sum(part.held_now for part in parts),
            refused=sum(part.refused for part in parts),
            verdicts=[verdict for part in parts for verdict in part.verdicts],
        )

    @property
    def equal(self) -> int:
        """Number of verdicts with an equal recomputed throttle time."""
        return sum(verdict.is_right(self.quota_type) for verdict in self.verdicts)

    @property
    def unseen(self) -> int:
        """Number of verdicts that Sluice dropped before they were read."""
        return self.throttle_count - len(self.verdicts)

    def take_in(self, row: dict[str, Any]) -> None:
        """Update the figures from one row of a page."""
        fresh = row["throttle_count"] - self.throttle_count
        shown = row["verdicts"][-fresh:] if fresh > 0 else []
        self.verdicts += [
            VerdictSeen(one["time_ms"], float(one["observed"]), float(one["bound"]), one["window_ms"], one["throttle_ms"]) for one in shown
        ]
        self.bound = row["bound"]
        self.burst_ms = row["paced"]["burst_ms"] if "paced" in row else None
        self.recorded = row["recorded_total"]
        self.series.append(now_ms(), self.recorded)
        self.observed = float(row["observed"])
        self.throttle_count = row["throttle_count"]
        self.throttled_until_ms = row["throttled_until_ms"]


class Watcher:
    """The groups by client-id or address and quota type. A context manager that reads the pages periodically inside the block."""

    def __init__(self, admin_port: int) -> None:
        self._admin_port = admin_port
        self._groups: dict[tuple[str, str, str], GroupSeen] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll_until_done, name="watcher", daemon=True)

    def of(self, name: str, quota_type: str) -> GroupSeen:
        """Return the figures of a client's group or of an address, at the broker with the largest count."""
        found = [group for (_, *key), group in tuple(self._groups.items()) if key == [name, quota_type]]
        return max(found, key=lambda group: group.recorded, default=GroupSeen())

    def poll(self) -> None:
        """Read the pages once.

        Raises:
            OSError: Sluice does not respond.
        """
        page = json.loads(ask(self._admin_port, "/quotas")[1])
        while True:
            for row in page["groups"]:
                key = (row["broker"], row["tags"].get("client-id", ""), row["quota_type"])
                self._groups.setdefault(key, GroupSeen(row["quota_type"])).take_in(row)
            if page["next"] is None:
                break
            page = json.loads(ask(self._admin_port, f"/quotas?after={page['next']}")[1])
        page = json.loads(ask(self._admin_port, "/connections")[1])
        for row in page["ips"]:
            group = self._groups.setdefault((row["broker"], row["ip"], "Connection"), GroupSeen("Connection"))
            group.bound, group.held_now = row["bound"], page["held"]

    def read_closes(self) -> None:
        """Read the number of refused connections once; only the stream of new connections has refusals.

        Raises:
            OSError: Sluice does not respond.
        """
        page = ask(self._admin_port, "/metrics")[1].decode()
        refused = sum(int(float(count)) for count in _REFUSED_COUNT.findall(page))
        for (_, _, quota_type), group in self._groups.items():
            if quota_type == "Connection":
                group.refused = refused

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _poll_until_done(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            try:
                self.poll()
            except OSError:
                return  # the demo reports the end of the proxy's process


def ask(port: int, path: str) -> tuple[int, bytes]:
    """Return HTTP status and body of a page of the admin port.

    Raises:
        OSError: the port does not respond.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()
