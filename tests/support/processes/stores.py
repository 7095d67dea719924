"""Quota stores for a common contract: each kind, and any number of stores in one place."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from proxy.base.clock import now_ms, wall_time_s
from proxy.quota_store.file.store import FileStore
from proxy.quota_store.memory import MemoryStore
from proxy.quota_store.store import OnContent, Origin, QuotaStore, StoreChange, StoreContent
from proxy.quota_store.topic.store import TopicStore
from proxy.quota_store.zookeeper.store import ZookeeperStore
from tests.support.kafka.zookeeper import ZookeeperServer

PATIENCE_S = 90.0
"""A time limit against hangs."""


class Opened:
    """A store that is followed, and the contents that it reported."""

    def __init__(self, make: Callable[[OnContent], QuotaStore]) -> None:
        self.reported: list[tuple[Origin, StoreContent]] = []
        self.store = make(self._take)
        self._following: asyncio.Task[None] | None = None

    def _take(self, content: StoreContent, origin: Origin) -> None:
        self.reported.append((origin, content))

    @property
    def content(self) -> StoreContent:
        """The present content of the store."""
        return self.store.content

    async def start(self) -> None:
        """Read the content and follow it."""
        await self.store.start()
        self._following = asyncio.create_task(self.store.follow_forever())

    async def alter(self, *changes: StoreChange) -> None:
        """Make these changes."""
        await self.store.alter(lambda _: (None, changes))

    async def until(self, good: Callable[[StoreContent], bool], within_s: float = PATIENCE_S) -> float:
        """Wait until `good` holds for the content; return the seconds."""
        began = time.monotonic()
        while not good(self.content):
            assert time.monotonic() - began < within_s, self.store.status
            await asyncio.sleep(0.005)
        return time.monotonic() - began

    async def close(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        await self.store.close()


class Place:
    """A place where stores of one kind share one content.

    Attributes:
        kind: "memory", "file", "zookeeper" or "topic".
        is_shared: whether several stores may use it at once.
    """

    def __init__(self, kind: str, make: Callable[[OnContent], QuotaStore]) -> None:
        self.kind = kind
        self.is_shared = kind != "memory"
        self._make = make
        self._opened: list[Opened] = []

    async def open(self) -> Opened:
        """Return a store, started and followed."""
        opened = Opened(self._make)
        self._opened.append(opened)
        await opened.start()
        return opened

    async def close(self) -> None:
        """End all stores."""
        for opened in self._opened:
            await opened.close()


def memory_place() -> Place:
    """Return a place for one store."""
    return Place("memory", lambda on_content: MemoryStore(on_content, now_ms=now_ms, wall_time_s=wall_time_s))


def file_place(directory: Path) -> Place:
    """Return a file without quotas."""
    path = directory / "quotas.toml"
    path.write_text("")
    path.chmod(0o600)
    return Place("file", lambda on_content: FileStore(path, on_content, now_ms=now_ms, wall_time_s=wall_time_s))


def zookeeper_place(connect: str, **options: Any) -> Place:
    """Return the nodes below a chroot."""
    return Place(
        "zookeeper",
        lambda on_content: ZookeeperStore(connect, on_content, now_ms=now_ms, wall_time_s=wall_time_s, **{"creates": True, **options}),
    )


def topic_place(bootstrap: str, topic: str, **options: Any) -> Place:
    """Return a topic that is created by the first store."""

    def settings() -> dict[str, Any]:
        return {"bootstrap_servers": bootstrap}

    return Place(
        "topic",
        lambda on_content: TopicStore(settings, topic, on_content, now_ms=now_ms, wall_time_s=wall_time_s, **{"create": True, **options}),
    )


class Nodes:
    """Another client of ZooKeeper, which reads and writes nodes as other programs do."""

    def __init__(self, connect: str) -> None:
        self._client = KazooClient(connect)
        self._client.start()

    def get(self, path: str) -> bytes | None:
        """Return the data of a node."""
        return self._client.get(path)[0] if self._client.exists(path) else None

    def paths(self, path: str = "/config") -> list[str]:
        """Return all nodes below the chroot, without notifications."""
        found = []
        for name in sorted(self._client.get_children(path)):
            here = f"{path}/{name}"
            if not here.startswith("/config/changes/"):
                found += [here, *self.paths(here)]
        return found

    def notifications(self) -> list[bytes]:
        """Return the notifications, oldest first."""
        return [self._client.get(f"/config/changes/{name}")[0] for name in sorted(self._client.get_children("/config/changes"))]

    def write(self, path: str, data: bytes) -> None:
        """Create a node, or replace its data."""
        if self._client.exists(path):
            self._client.set(path, data)
        else:
            self._client.create(path, data, makepath=True)

    def delete(self, path: str) -> None:
        """Remove a node and its children."""
        self._client.delete(path, recursive=True)

    def notify(self, data: bytes) -> None:
        """Create a notification."""
        self._client.create("/config/changes/config_change_", data, sequence=True)

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()


def new_chroot(server: ZookeeperServer, name: str) -> str:
    """Return a connect string with a new, empty chroot."""
    nodes = Nodes(server.address)
    nodes.write(f"/{name}", b"")
    nodes.close()
    return f"{server.address}/{name}"


@contextlib.asynccontextmanager
async def opened_place(place: Place) -> AsyncIterator[Place]:
    """Close all stores of a place at the end of the block."""
    try:
        yield place
    finally:
        await place.close()
