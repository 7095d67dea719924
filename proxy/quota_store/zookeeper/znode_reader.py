"""Reads ZooKeeper's nodes: all, or those that notifications name. For one thread."""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any, Final

from proxy.quota_store.zookeeper.client import Denied, ZookeeperClient, ZookeeperUnavailable
from proxy.quota_store.zookeeper.reads import Node
from proxy.quota_store.zookeeper.znode_codec import CHANGES, CONFIG, FOLDERS, SWITCHES, is_change, read_change
from proxy.quota_store.zookeeper.znode_tree import ZnodeTree

NOTIFICATIONS_MAX: Final = 1_000
"""Maximum number of notifications to follow; above it all nodes are read again."""
KEPT_MS: Final = 15 * 60 * 1_000
"""Age relative to the newest notification at which the reading process removes notifications, as brokers do."""
PURGED_AT_ONCE: Final = 200


class ZnodeReader:
    """Updates a tree from ZooKeeper.

    Args:
        client: the session to read with.
        tree: the known nodes.
        on_change: called on a thread of kazoo when a watch fires, once for each read.
        creates: whether to create missing parent nodes of Kafka's quotas.
    """

    def __init__(self, client: ZookeeperClient, tree: ZnodeTree, on_change: Callable[[Any], None], *, creates: bool) -> None:
        self.tree = tree
        self._client = client
        self._on_change = on_change
        self._creates = creates
        self._last_seen = ""  # name of the newest notification read; all names have the same length

    def read_all(self) -> None:
        """Read every node. Watches are set first, so a change during the read fires one.

        Raises:
            ZookeeperUnavailable, Denied: not all nodes can be read.
        """
        client = self._client
        self._watch_changes()
        self.read_switches()
        paths: list[str] = []
        for folder in FOLDERS:
            names = [f"{folder}/{name}" for name in client.children(f"{CONFIG}/{folder}")]
            paths += names
            self.read(names)
        users = [path for path in paths if path.startswith("users/") and (node := self.tree.node(path)) is not None and node.children]
        below = [
            f"{parent.removeprefix(f'{CONFIG}/')}/{name}"
            for parent, names in client.children_of_many(f"{CONFIG}/{user}/clients" for user in users)
            for name in names
        ]
        self.read(below)
        self.tree.keep_only([*paths, *below])

    def _watch_changes(self) -> list[str]:
        """Return the names of all notifications, and set a watch for the next one."""
        names = self._client.children(CHANGES, self._on_change)
        if not names and not self._client.exists(CHANGES):
            if not self._creates:
                raise ZookeeperUnavailable(
                    f"has no {CHANGES}, so this is not the tree of a Kafka cluster; write another connect, or create = true"
                )
            for one in (CHANGES, *(f"{CONFIG}/{folder}" for folder in FOLDERS)):
                self._client.make(one)
            if not self._client.exists(CHANGES):
                raise ZookeeperUnavailable("has no node for the chroot of connect; create that node, or write another connect")
            names = self._client.children(CHANGES, self._on_change)
        names = [name for name in names if is_change(name)]
        self._last_seen = max(names, default="")
        return names

    def read_switches(self) -> None:
        """Read the node of switches, and set a watch on it.

        Raises:
            ZookeeperUnavailable, Denied: the node cannot be read.
        """
        if self._client.exists(SWITCHES, self._on_change):
            self.tree.put_switches(self._client.get(SWITCHES, self._on_change))
        else:
            self.tree.put_switches(None)

    def read(self, paths: Iterable[str]) -> None:
        """Read nodes below /config; a node that Sluice is not authorized to read keeps its last valid values.

        Raises:
            ZookeeperUnavailable: the nodes cannot be read.
        """
        for path, node in self._client.get_many(f"{CONFIG}/{path}" for path in paths):
            here = path.removeprefix(f"{CONFIG}/")
            self.tree.put(here, "may not be read" if isinstance(node, Denied) else node)

    def read_changes(self) -> bool:
        """Read the nodes that new notifications name. A notification does not contain the change.

        Returns:
            Whether all nodes were read instead, because there are too many notifications, or older names than before.

        Raises:
            ZookeeperUnavailable, Denied: not all nodes can be read.
        """
        before = self._last_seen
        names = self._watch_changes()
        new = sorted(name for name in names if name > before)
        if self._last_seen < before or len(new) > NOTIFICATIONS_MAX:
            self.read_all()
            return True
        self.read_switches()
        nodes = [node for _, node in self._client.get_many(f"{CHANGES}/{name}" for name in new)]
        paths = dict.fromkeys(path for node in nodes if isinstance(node, Node) if (path := read_change(node.data)) is not None)
        self.read(with_users(paths))
        if new:
            self._purge(names)
        return False

    def has_newer_changes(self) -> bool:
        """Whether there are notifications that came after the last read began.

        Raises:
            ZookeeperUnavailable, Denied: the notifications cannot be read.
        """
        return any(name > self._last_seen for name in self._client.children(CHANGES) if is_change(name))

    def _purge(self, names: list[str]) -> None:
        newest = self._client.created_ms(f"{CHANGES}/{self._last_seen}")
        for name in nsmallest(PURGED_AT_ONCE, names) if len(names) > 1 else ():
            created = self._client.created_ms(f"{CHANGES}/{name}")
            if newest is None or created is None or newest - created <= KEPT_MS:
                return
            self._client.delete(f"{CHANGES}/{name}")


def with_users(paths: Iterable[str]) -> list[str]:
    """Return paths, and for each client of a user also the path of the user, which may appear and disappear with the client."""
    both = (part for path in paths for part in ((path.partition("/clients/")[0], path) if path.startswith("users/") else (path,)))
    return list(dict.fromkeys(both))
