"""A store in a compacted topic of the cluster, for clusters without ZooKeeper; any number of Sluices share it."""

from collections.abc import Callable

from proxy.quota_store.remote import RemoteStore
from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import OnContent
from proxy.quota_store.topic.log import Settings
from proxy.quota_store.topic.worker import TopicWorker


class TopicStore(RemoteStore):
    """Keeps the newest content of the topic, and follows it on a thread of its own.

    Args:
        settings: of connections to the brokers, which do not go through Sluice.
        topic: its name.
        on_content: called with each new content, on the loop's thread.
        create: a missing topic is created.
        replication_factor: of a created topic; None: 3, or the number of brokers where it is lower.
        snapshot: the last good content, for a start without brokers; without a snapshot the start waits.
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
