"""Translates changes into the operations on ZooKeeper's nodes that a broker would make.

Source: Kafka 3.9 `AdminZkClient`. A node is read, changed and written as a whole. An empty node is removed with its empty parents. Each
change writes a notification.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from proxy.quota_store.store import StoreChange, StoreUnavailable, SwitchChange, Table, put
from proxy.quota_store.zookeeper.client import Create, Delete, Operation, Write
from proxy.quota_store.zookeeper.znode_codec import (
    CHANGE_PREFIX,
    CHANGES,
    CONFIG,
    SWITCHES,
    BadNode,
    text_of,
    write_change,
    write_config,
    write_switches,
)
from proxy.quota_store.zookeeper.znode_tree import ZnodeTree
from quota.admin.messages import EntityKey
from quota.admin.znodes import path_of


class Step(NamedTuple):
    """The operations for one node; they are in one transaction."""

    path: str
    """Path below /config, or `SWITCHES`."""
    operations: list[Operation]


def steps_of(changes: Iterable[StoreChange], tree: ZnodeTree) -> list[Step]:
    """Return the steps for changes to the nodes in `tree`, in order.

    Raises:
        StoreUnavailable: a node has content that must not be overwritten, or a name is not valid in ZooKeeper.
    """
    configs: dict[str, dict[str, str]] = {}
    tables: dict[Table, dict[str, str]] | None = None
    for change in changes:
        if isinstance(change, SwitchChange):
            tables = {name: dict(table) for name, table in tree.tables.items()} if tables is None else tables
            put(tables[change.table], change.target, change.mode)
            continue
        path = _path(change.entity)
        if path not in configs:
            configs[path] = _texts(tree, path)
        value = None if change.value is None else text_of(change.key, change.value, change.entity)
        put(configs[path], change.key, value)
    steps = _Batch(tree, configs).steps()
    if tables is not None:
        steps.append(Step(SWITCHES, [_switches_operation(tree, tables)]))
    return steps


def _path(entity: EntityKey) -> str:
    path = path_of(entity)
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise StoreUnavailable(f"{CONFIG}/{path}: cannot be a node of ZooKeeper; choose another name, nothing was changed")
    return path


def _texts(tree: ZnodeTree, path: str) -> dict[str, str]:
    try:
        return dict(tree.texts(path))
    except BadNode as bad:
        raise StoreUnavailable(f"{CONFIG}/{path}: {bad}; repair or delete the node first, nothing was changed") from None


def _switches_operation(tree: ZnodeTree, tables: Mapping[Table, Mapping[str, str]]) -> Operation:
    data = write_switches(tables)
    if tree.switches_node is None:
        return Create(SWITCHES, data, SWITCHES.rpartition("/")[0])
    return Write(SWITCHES, data, tree.switches_node.version)


class _Batch:
    """Nodes that change together: nodes with quotas are written first, then empty ones are removed."""

    def __init__(self, tree: ZnodeTree, configs: Mapping[str, dict[str, str]]) -> None:
        self._tree = tree
        self._configs = configs
        self._made: set[str] = set()
        self._gone: set[str] = set()
        self._clients: dict[str, set[str]] = {}  # clients of the affected users after the change

    def steps(self) -> list[Step]:
        steps = [Step(path, self._written(path, config)) for path, config in self._configs.items() if config]
        empty = sorted((path for path, config in self._configs.items() if not config), key=lambda path: "/clients/" not in path)
        steps += [Step(path, self._emptied(path)) for path in empty if self._tree.node(path) is not None]
        return steps

    def _written(self, path: str, config: Mapping[str, str]) -> list[Operation]:
        node, data = self._tree.node(path), write_config(config)
        if node is not None or path in self._made:
            return [Write(f"{CONFIG}/{path}", data, 0 if node is None else node.version), _notification(path)]
        root = f"{CONFIG}/{path.partition('/')[0]}"
        above = self._missing_above(path)
        self._made |= {*above, path}
        self._note_client(path)
        return [*(Create(f"{CONFIG}/{one}", b"", root) for one in above), Create(f"{CONFIG}/{path}", data, root), _notification(path)]

    def _missing_above(self, path: str) -> list[str]:
        user, found, _ = path.partition("/clients/")
        if not found:
            return []
        node = self._tree.node(user)
        missing = [] if node is not None else [user]
        if node is None or not node.children:
            missing.append(f"{user}/clients")
        return [one for one in missing if one not in self._made]

    def _emptied(self, path: str) -> list[Operation]:
        node = self._tree.node(path)
        assert node is not None
        if path in self._gone:
            return [_notification(path)]  # the node goes with the last of its clients
        if node.children or self._left(path):
            return [Write(f"{CONFIG}/{path}", write_config({}), node.version), _notification(path)]
        self._gone.add(path)
        self._clients_of(path.partition("/clients/")[0]).discard(path)
        return [Delete(f"{CONFIG}/{path}", node.version), *self._cleaned(path), _notification(path)]

    def _note_client(self, path: str) -> None:
        user, found, _ = path.partition("/clients/")
        if found:
            self._clients_of(user).add(path)

    def _clients_of(self, user: str) -> set[str]:
        if user not in self._clients:
            self._clients[user] = set(self._tree.clients(user))
        return self._clients[user]

    def _left(self, user: str) -> bool:
        """Whether a user still has clients after the change."""
        return bool(self._clients_of(user))

    def _cleaned(self, path: str) -> list[Operation]:
        """Return the operations that remove the empty parents of a user's client."""
        user, found, _ = path.partition("/clients/")
        if not found or self._left(user):
            return []
        operations: list[Operation] = [Delete(f"{CONFIG}/{user}/clients", -1)]
        above = self._tree.node(user)
        if above is not None and above.children == 1 and not self._keeps_texts(user):
            self._gone.add(user)
            operations.append(Delete(f"{CONFIG}/{user}", above.version))
        return operations

    def _keeps_texts(self, user: str) -> bool:
        if user in self._configs:
            return bool(self._configs[user])
        try:
            return bool(self._tree.texts(user))
        except BadNode:
            return True


def _notification(path: str) -> Operation:
    return Create(f"{CHANGES}/{CHANGE_PREFIX}", write_change(path), CHANGES, sequence=True)
