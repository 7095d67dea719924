"""The known content of ZooKeeper's nodes, and the last valid values of each."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from proxy.quota_store.store import VALUES, StoreContent, Table
from proxy.quota_store.zookeeper.reads import Node
from proxy.quota_store.zookeeper.znode_codec import SWITCHES, BadNode, read_config, read_switches, read_values
from quota.admin.messages import EntityKey
from quota.admin.znodes import entity_of, path_of

PROBLEMS_MAX: Final = 8


class ZnodeTree:
    """The nodes of quotas by path below /config, and the node of switches and pacings.

    An invalid node keeps its previous values. A node with some invalid keys keeps the previous values of these keys.
    """

    def __init__(self, good: "ZnodeTree | None" = None) -> None:
        self._nodes: dict[str, Node] = {}
        self._values: dict[str, Mapping[str, float]] = {} if good is None else dict(good._values)
        self._wrong: dict[str, str] = {}
        self._entities: dict[str, EntityKey | None] = {}
        self._clients: dict[str, set[str]] = {}  # paths of a user's clients by the path of the user
        self._content: StoreContent | None = None
        self._changed: set[str] = set()  # paths changed since that content
        self._noncanonical: set[str] = (
            set() if good is None else set(good._noncanonical)
        )  # paths with values at which Kafka would not write them
        self.switches_node: Node | None = None
        self._tables: Mapping[Table, Mapping[str, str]] = {name: {} for name in VALUES} if good is None else good._tables

    @property
    def rejected(self) -> int:
        """Number of invalid nodes."""
        return len(self._wrong)

    @property
    def problem(self) -> str | None:
        """Path and problem of one invalid node; None: there is none."""
        return next((f"{path} {what}" for path, what in self._wrong.items()), None)

    @property
    def problems(self) -> list[str]:
        """Path and problem of the first few invalid nodes."""
        return [f"{path} {what}" for path, what in self._wrong.items()][:PROBLEMS_MAX]

    def content(self) -> StoreContent:
        """Return the valid content. If an entity has two nodes with differently encoded names, the one that Kafka would write counts."""
        before, changed, self._changed = self._content, self._changed, set()
        if before is None or self._noncanonical or any(self._is_noncanonical(path) for path in changed):
            self._content = StoreContent(MappingProxyType(self._all_quotas()), **self._copied_tables())
            return self._content
        if changed - {SWITCHES}:
            quotas = dict(before.quotas)
            for path in changed - {SWITCHES}:
                self._bring(path, quotas)
            before = before._replace(quotas=MappingProxyType(quotas))
        if SWITCHES in changed:
            tables = self._copied_tables()
            kept = {name: before.table(name) if table == before.table(name) else table for name, table in tables.items()}
            before = StoreContent(before.quotas, **kept)
        self._content = before
        return before

    def _copied_tables(self) -> dict[Table, Mapping[str, str]]:
        return {name: MappingProxyType(dict(table)) for name, table in self._tables.items()}

    def _all_quotas(self) -> dict[EntityKey, Mapping[str, float]]:
        quotas: dict[EntityKey, Mapping[str, float]] = {}
        for path, values in self._values.items():
            entity = self._entity(path)
            if entity is not None and values and (entity not in quotas or path_of(entity) == path):
                quotas[entity] = values
        return quotas

    def _bring(self, path: str, quotas: dict[EntityKey, Mapping[str, float]]) -> None:
        """Update `quotas` from the values of the node at a path."""
        entity, values = self._entity(path), self._values.get(path)
        if entity is None:
            return
        if values:
            quotas[entity] = values
        else:
            quotas.pop(entity, None)

    def _is_noncanonical(self, path: str) -> bool:
        entity = None if path == SWITCHES else self._entity(path)
        return entity is not None and path_of(entity) != path

    def _note_values(self, path: str) -> None:
        self._changed.add(path)
        if self._is_noncanonical(path) and path in self._values:
            self._noncanonical.add(path)
        else:
            self._noncanonical.discard(path)

    def _entity(self, path: str) -> EntityKey | None:
        if path not in self._entities:
            self._entities[path] = entity_of(path)
        return self._entities[path]

    def put(self, path: str, node: Node | str | None) -> None:
        """Store the result of a read at `path`: a node, None if it does not exist, or the reason why it cannot be read."""
        self._wrong.pop(path, None)
        if isinstance(node, str):
            self._wrong[path] = node
            return
        if node is None:
            self._nodes.pop(path, None)
            self._note_client(path, there=False)
            if self._values.pop(path, None) is not None:
                self._note_values(path)
            return
        self._nodes[path] = node
        self._note_client(path, there=True)
        entity = self._entity(path)
        if entity is None:
            self._wrong[path] = "is not a name that Kafka writes"
            return
        try:
            self._take(path, entity, node)
        except BadNode as bad:
            self._wrong[path] = str(bad)

    def _take(self, path: str, entity: EntityKey, node: Node) -> None:
        values, wrong = read_values(read_config(node.data), entity)
        if wrong:
            key, what = next(iter(wrong.items()))
            self._wrong[path] = f"{key} {what}"
        held = self._values.get(path, {})
        merged = dict(values) | {key: held[key] for key in wrong if key in held}
        if merged != held:
            self._values[path] = MappingProxyType(merged)
            self._note_values(path)

    def _note_client(self, path: str, *, there: bool) -> None:
        user, found, _ = path.partition("/clients/")
        if found and there:
            self._clients.setdefault(user, set()).add(path)
        elif found and user in self._clients:
            self._clients[user].discard(path)
            if not self._clients[user]:
                del self._clients[user]

    def put_switches(self, node: Node | None) -> None:
        """Store the node of switches; None: it does not exist."""
        self._wrong.pop(SWITCHES, None)
        self.switches_node = node
        try:
            tables = read_switches(b"" if node is None else node.data)
            if tables != self._tables:
                self._tables = tables
                self._changed.add(SWITCHES)
        except BadNode as bad:
            self._wrong[SWITCHES] = str(bad)

    def keep_only(self, paths: Iterable[str]) -> None:
        """Remove all nodes that are not among `paths`, since they no longer exist."""
        there = set(paths)
        for path in [path for path in (*self._values, *self._nodes, *self._wrong) if path not in there and path != SWITCHES]:
            self.put(path, None)

    # --- for writers

    def node(self, path: str) -> Node | None:
        """Return the node at `path` below /config; None: it does not exist."""
        return self._nodes.get(path)

    def clients(self, user: str) -> Collection[str]:
        """Return the paths of the nodes of a user's clients."""
        return self._clients.get(user, ())

    @property
    def tables(self) -> Mapping[Table, Mapping[str, str]]:
        """The last valid switches and pacings."""
        return self._tables

    def texts(self, path: str) -> dict[str, str]:
        """Return the configuration in a node, credentials included; empty if the node does not exist.

        Raises:
            BadNode: the node cannot be read, so it must not be overwritten.
        """
        node = self._nodes.get(path)
        return {} if node is None else read_config(node.data)
