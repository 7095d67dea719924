"""Quotas in a compacted topic of the cluster behind: for clusters without ZooKeeper, shared by any number of Sluices."""

from collections.abc import Callable

from proxy.quota_store.remote import RemoteStore
from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import OnContent
from proxy.quota_store.topic.log import Settings
from proxy.quota_store.topic.worker import TopicWorker


class TopicStore(RemoteStore):
    """Keeps what the topic last said, and follows it on a thread of its own.

    Args:
        settings: how brokers are reached, not through Sluice.
        topic: its name.
        on_content: called with each new content, on the loop's thread.
        create: a topic that is missing is created.
        replication_factor: then; None: 3, or as many as there are brokers.
        snapshot: what was last good, for a start without brokers; without it the start waits for them.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        on_content: OnContent,
        *,
        now_ms: Callable[[], int],
        wall_time_s: Callable[[], float],
        create: bool = False,
        replication_factor: int | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        super().__init__(f"topic:{topic}", on_content, now_ms=now_ms, wall_time_s=wall_time_s, snapshot=snapshot)
        self.worker = TopicWorker(settings, topic, self.place, self.tell, create=create, replication_factor=replication_factor)
