"""The store in the ZooKeeper nodes of Kafka's brokers; Sluice and brokers read and change the same nodes."""

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.quota_store.remote import RemoteStore
from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import OnContent
from proxy.quota_store.zookeeper.access import PLAIN, Access
from proxy.quota_store.zookeeper.client import ZookeeperClient
from proxy.quota_store.zookeeper.worker import ZookeeperWorker
from proxy.telemetry import log

STALLED_MS: Final = 60_000
WATCH_S: Final = 1.0
MakeClient = Callable[[Callable[[bool], None]], ZookeeperClient]


class ZookeeperStore(RemoteStore):
    """Keeps the newest content of ZooKeeper, and follows ZooKeeper on a separate thread.

    A change of more than 200 entities is made in portions; each portion is atomic.

    Args:
        connect: HOST:PORT[,HOST:PORT...][/CHROOT].
        on_content: called with each new content, on the loop's thread.
        access: TLS and credentials.
        creates: whether to create missing parent nodes of Kafka's quotas.
        snapshot: file with the last valid content, for a start without ZooKeeper; None: the start waits for it.
        stalled_ms: time without any result after which the client and its thread are replaced.
        make_client: creates a client from a function to call when the connection is made or lost.
    """

    worker: ZookeeperWorker

    def __init__(
        self,
        connect: str,
        on_content: OnContent,
        *,
        now_ms: Callable[[], int],
        wall_time_s: Callable[[], float],
        access: Access = PLAIN,
        creates: bool = False,
        snapshot: Snapshot | None = None,
        stalled_ms: int = STALLED_MS,
        make_client: MakeClient | None = None,
    ) -> None:
        super().__init__(f"zookeeper:{connect}", on_content, now_ms=now_ms, wall_time_s=wall_time_s, snapshot=snapshot)
        self._creates = creates
        self._stalled_ms = stalled_ms
        self._make_client: MakeClient = make_client or (lambda on_connected: ZookeeperClient(connect, on_connected, access=access))
        self.worker = self._new_worker(None)

    async def follow_forever(self) -> None:
        """Replace a thread that hangs, until cancelled; the thread follows the store."""
        while True:
            await asyncio.sleep(WATCH_S)
            silent_ms = self._now_ms() - self.worker.progress_ms
            if silent_ms > self._stalled_ms:
                log.warning("zookeeper_client_replaced", source=self.place, silent_ms=silent_ms)
                self.worker.stop()
                self.worker = self._new_worker(self.worker)
                self.worker.start()

    def _new_worker(self, before: ZookeeperWorker | None) -> ZookeeperWorker:
        good = None if before is None else before.tree
        return ZookeeperWorker(self._make_client, self.place, self.report, good, self._now_ms, creates=self._creates)
