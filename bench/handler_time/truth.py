"""Seconds of request time by client-id: what a broker charges, and what Sluice estimates.

The broker reports a rate over its quota's window. With two windows of an hour no sample expires during a run: the rate is the sum so far,
divided by one hour plus the time since the first record. So the sum follows from the rate.
"""

import json
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.harness.arms import Arm
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools

WINDOW_SECONDS = 3_600
BROKER_SETTINGS = {"quota.window.size.seconds": WINDOW_SECONDS, "quota.window.num": 2}
UNREACHABLE_PERCENT = 1_000_000_000
READER = "RequestTimes"


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds since the start by client-id, on both sides, and requests as Sluice counts them."""

    truth: Mapping[str, float]
    sluice: Mapping[str, float]
    requests: Mapping[str, float]
    at_ns: int
    """The time of the reading, on the monotonic clock."""


class HandlerTimeReader:
    """Reads both sides at the same time."""

    def __init__(self, tools: JavaTools, cluster: KafkaCluster, arm: Arm) -> None:
        self._tools = tools
        self._ports = [str(node.jmx_port) for node in cluster.nodes.values()]
        self._arm = arm
        self._threads = ThreadPoolExecutor(1)

    def read(self, prefix: str, began: float) -> Reading:
        """Read all client-ids that begin with `prefix`, whose first request was about at `began` (seconds since the epoch)."""
        at_ns = time.monotonic_ns()
        sluice = self._threads.submit(self._sluice, prefix)
        truth = self._truth(prefix, began)
        return Reading(truth, *sluice.result(), at_ns)

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown()

    def _truth(self, prefix: str, began: float) -> dict[str, float]:
        return cumulated(self._tools.run(READER, *self._ports).out.splitlines(), prefix, began)

    def _sluice(self, prefix: str) -> tuple[dict[str, float], dict[str, float]]:
        seconds: defaultdict[str, float] = defaultdict(float)
        for group in json.loads(self._page("/quotas"))["groups"]:
            client_id = group["tags"].get("client-id", "")
            if group["quota_type"] == "Request" and client_id.startswith(prefix):
                seconds[client_id] += group["recorded_total"] / 100
        return dict(seconds), requests_by_client(self._page("/metrics").splitlines(), prefix)

    def _page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self._arm.admin}{path}", timeout=10) as answer:
            return answer.read().decode()


def cumulated(lines: Sequence[str], prefix: str, began: float) -> dict[str, float]:
    """Turn the broker's rates in percent into seconds since the first record: rate x (hour + age of the first record)."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        _, read_ms, client_id, rate = line.split()
        if client_id.startswith(prefix):
            seconds[client_id] += float(rate) / 100 * (WINDOW_SECONDS + max(0.0, int(read_ms) / 1_000 - began))
    return dict(seconds)


def requests_by_client(lines: Sequence[str], prefix: str) -> dict[str, float]:
    """Sum `kafka_quota_requests_total` over the APIs."""
    requests: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        if line.startswith("kafka_quota_requests_total{"):
            client_id = line.split('client_id="')[1].split('"')[0]
            if client_id.startswith(prefix):
                requests[client_id] += float(line.rsplit(" ", 1)[1])
    return dict(requests)


def now() -> float:
    """Return seconds since the epoch, from the clock that the reader on the broker's side also uses."""
    return time.time()
