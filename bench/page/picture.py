"""The picture of the live page in the README: python -m bench.page.picture [FILE]

Starts a mock cluster, Sluice and clients of four tenants beyond and below their quotas, waits until the page has a history, and writes
docs/images/live-page.png. A file beyond 150 kB is an error.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from playwright.sync_api import Page

from bench.harness.engine import ROOT
from proxy.demo.mock_cluster import MockCluster
from tests.support.page.browser import WatchedPage, chromium
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

PICTURE: Final = ROOT / "docs" / "images" / "live-page.png"
BYTES_MAX: Final = 150_000
SECONDS: Final = 150
SIZE: Final = {"width": 1180, "height": 560}
RECORD: Final = b"x" * 20_000
CLIENTS: Final = {
    "orders-etl": 2.4e6,
    "clickstream": 1.3e6,
    "billing": 0.8e6,
    "reports-export": 0.55e6,
    "audit": 0.2e6,
    "search-index": 0.35e6,
}
"""Bytes per second that each client would send."""
QUOTAS: Final = {"orders-etl": 2e6, "clickstream": 1e6, "billing": 1e6, "reports-export": 0.5e6, "<default>": 1e6}


def main() -> int:
    """Take the picture; return 1 when it is too large."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory() as folder, MockCluster(3) as cluster, chromium() as browser:
        cluster.create_topic("picture", 3)
        quotas = write_quotas(
            Path(folder) / "quotas.toml", [{"client-id": name, "producer_byte_rate": rate} for name, rate in QUOTAS.items()]
        )
        with SluiceProcess(cluster.bootstrap, quotas=quotas, name="sluice-picture") as sluice:
            over = threading.Event()
            threads = [
                threading.Thread(target=_produce, args=(sluice.bootstrap, name, rate, at % 3, over))
                for at, (name, rate) in enumerate(CLIENTS.items())
            ]
            for thread in threads:
                thread.start()
            try:
                watched = WatchedPage(browser, f"http://127.0.0.1:{sluice.admin_port}", viewport=SIZE, color_scheme="light")
                _take(watched.open(), path)
            finally:
                over.set()
                for thread in threads:
                    thread.join()
    size = path.stat().st_size
    print(f"{path}: {size} bytes")
    return int(size > BYTES_MAX)


def _take(page: Page, path: Path) -> None:
    """Write the picture when the list has a history."""
    page.wait_for_timeout(1_000 * SECONDS)
    page.locator(".list-row.waiting").first.wait_for()
    page.screenshot(path=path)


def _produce(bootstrap: str, name: str, bytes_per_second: float, partition: int, over: threading.Event) -> None:
    """Produce to one partition, whose leader is one broker, at a rate that swings by a third, for the charts."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": name, "linger.ms": 0, "acks": 1, "log_level": 0}
    producer = Producer({**settings, "queue.buffering.max.messages": 100, "message.timeout.ms": 300_000})
    while not over.is_set():
        swing = 1.0 + 0.33 * ((time.monotonic() / 20) % 2 - 1)
        over.wait(len(RECORD) / bytes_per_second / swing)
        try:
            producer.produce("picture", RECORD, partition=partition)
        except BufferError:
            producer.poll(0.1)
        producer.poll(0)
    producer.purge()
    producer.flush(5)


if __name__ == "__main__":
    sys.exit(main())
