"""The page /metrics: plain integers of the data path, rendered outside the loop, never more than 2,000 series."""

import importlib.metadata
import threading
from collections.abc import Iterable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from proxy.observe.client_metrics import ClientFamilies
from proxy.observe.loop_lag import LoopLag
from proxy.observe.process_metrics import process_families
from proxy.observe.quota_metrics import quota_families
from proxy.observe.snapshot import Snapshot

SERIES_MAX: Final = 2_000
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_VERSION: Final = importlib.metadata.version("kafka-sluice")


class _Families(Collector):
    """Families that are made already, in the shape that the renderer asks for."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class MetricsPage:
    """Renders one scrape at a time; may be called from any thread."""

    def __init__(self, lag: LoopLag) -> None:
        self._lag = lag
        self._clients = ClientFamilies()
        self._one_at_a_time = threading.Lock()

    def render(self, snapshot: Snapshot) -> bytes:
        """Return the page in Prometheus' text format."""
        with self._one_at_a_time:
            families = [*process_families(snapshot, self._lag, _VERSION), *quota_families(snapshot)]
            left = SERIES_MAX - sum(len(family.samples) for family in families)
            families += self._clients.families(snapshot, left)
        return generate_latest(_Families(families))
