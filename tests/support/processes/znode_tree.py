"""ZooKeeper's quota nodes in memory: nodes with and without data, and notifications."""

from collections.abc import Iterator, Mapping


class ZnodeTree:
    """The nodes below /config. A node without data has None."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, str] | None] = {}
        self.notifications: list[str] = []

    def read(self, path: str) -> Mapping[str, str]:
        return self._nodes.get(path) or {}

    def write(self, path: str, config: Mapping[str, str]) -> None:
        if config or not self._cleaned(path):
            for parent in _parents(path):
                self._nodes.setdefault(parent, None)
            self._nodes[path] = dict(config)
        self.notifications.append(path)

    def configs(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Return path and values of every node with data."""
        return ((path, config) for path, config in self._nodes.items() if config is not None)

    def with_data(self) -> dict[str, Mapping[str, str]]:
        """Return full path and values of every node with data."""
        return {f"/config/{path}": config for path, config in self.configs()}

    def _children(self, path: str) -> set[str]:
        return {node for node in self._nodes if node.startswith(f"{path}/") and "/" not in node[len(path) + 1 :]}

    def _cleaned(self, path: str) -> bool:
        """Remove a node without values, and empty nodes above it; False when it has children."""
        if self._children(path):
            return False
        self._nodes.pop(path, None)
        user, separator, _ = path.partition("/clients/")
        if separator and not self._children(f"{user}/clients"):
            self._nodes.pop(f"{user}/clients", None)
            if not self._nodes.get(user) and not self._children(user):
                self._nodes.pop(user, None)
        return True


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]
