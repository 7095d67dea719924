"""The page /metrics: counters of the data path, rendered outside the event loop, at most 2,000 series."""

import importlib.metadata
import threading
from collections.abc import Iterable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from proxy.observe.metrics.clients import ClientFamilies
from proxy.observe.metrics.fleet import fleet_families
from proxy.observe.metrics.process import process_families
from proxy.observe.metrics.quotas import quota_families
from proxy.observe.snapshot import Snapshot
from proxy.telemetry.loop_lag import LoopLag

SERIES_MAX: Final = 2_000
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_VERSION: Final = importlib.metadata.version("kafka-sluice")


class _Families(Collector):
    """Families that are complete, in the form that the renderer needs."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class MetricsPage:
    """Renders one scrape at a time; any thread may call it."""

    def __init__(self, lag: LoopLag) -> None:
        self._lag = lag
        self._clients = ClientFamilies()
        self._one_at_a_time = threading.Lock()

    def render(self, snapshot: Snapshot, *, with_names: bool = True) -> bytes:
        """Return the page in Prometheus' text format; without `with_names` it contains no names of clients, tenants or addresses."""
        with self._one_at_a_time:
            families = [
                *process_families(snapshot, self._lag, _VERSION, with_names=with_names),
                *quota_families(snapshot, with_names=with_names),
                *fleet_families(snapshot.fleet),
            ]
            left = SERIES_MAX - sum(len(family.samples) for family in families)
            families += self._clients.families(snapshot, left) if with_names else self._clients.sums(snapshot)
        return generate_latest(_Families(families))
