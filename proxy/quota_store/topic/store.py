"""The store in a compacted topic of the cluster, for clusters without ZooKeeper; any number of Sluices can share it."""

from collections.abc import Callable

from proxy.quota_store.remote import RemoteStore
from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import OnContent
from proxy.quota_store.topic.log import Settings
from proxy.quota_store.topic.worker import TopicWorker


class TopicStore(RemoteStore):
    """Keeps the newest content of the topic, and follows the topic on a separate thread.

    Args:
        settings: returns the settings of direct connections to the brokers.
        topic: name of the topic.
        on_content: called with each new content, on the loop's thread.
        create: whether to create a missing topic.
        replication_factor: replication factor of a created topic; None: 3, or the number of brokers if it is lower.
        snapshot: file with the last valid content, for a start without brokers; None: the start waits for them.
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
        self.worker = TopicWorker(settings, topic, self.place, self.report, create=create, replication_factor=replication_factor)
