"""The state of a proxy as its events describe it, and its groups in the order of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

Group = Mapping[str, Any]
Order = Literal["waiting", "rate", "use", "minute", "name"]
Key = tuple[float | str, ...]


class LiveState:
    """Applies the events of /ui/events.

    Attributes:
        head: the values above the groups.
        groups: by number; texts and numbers by field, and the number as `id`.
        left_out: number of groups that the proxy does not show.
    """

    def __init__(self) -> None:
        self.head: dict[str, Any] = {}
        self.groups: dict[int, dict[str, Any]] = {}
        self.left_out = 0
        self._fields: list[str] = []

    def apply(self, name: str, data: Mapping[str, Any]) -> None:
        """Apply one event."""
        if name == "everything":
            self.head, self.groups, self._fields = {}, {}, data["fields"]
        self.head |= data["head"]
        self.left_out = data["groups_left_out"]
        for number, *values in [*data.get("groups", ()), *data.get("added", ())]:
            self.groups[number] = {"id": number, **dict(zip(self._fields, values, strict=True))}
        for number, *values in data.get("changed", ()):
            self.groups[number] |= zip(self._fields[-len(values) :], values, strict=True)
        for number in data.get("removed", ()):
            del self.groups[number]

    @property
    def now_ms(self) -> int:
        """The time of sensors, in ms."""
        return int(self.head.get("now_ms", 0))

    def selected(self, order: Order, part: str = "") -> Sequence[Group]:
        """Return the groups whose broker, name, or value of a tag contains a text, in an order."""
        wanted, now_ms, key = part.lower(), self.now_ms, ORDERS[order]
        found = [group for group in self.groups.values() if wanted in f"{group['broker']} {group['quota_type']} {group['name']}".lower()]
        return sorted(found, key=lambda group: key(group, now_ms))


def left_ms(group: Group, now_ms: int) -> int:
    """Return how long a group waits from now on, in ms."""
    return max(0, int(group["throttled_until_ms"]) - now_ms)


def use_of(group: Group) -> float:
    """Return the rate as a share of the quota; 0 without a quota."""
    return (group["observed"] or 0.0) / group["bound"] if group["bound"] else 0.0


def _worst(group: Group, now_ms: int) -> Key:
    return -left_ms(group, now_ms), -float(group["waited_ms_a_minute"]), -use_of(group), group["name"]


ORDERS: Final[Mapping[Order, Callable[[Group, int], Key]]] = {
    "waiting": _worst,
    "rate": lambda group, _: (-(group["observed"] or 0.0), group["name"]),
    "use": lambda group, _: (-use_of(group), group["name"]),
    "minute": lambda group, _: (-float(group["waited_ms_a_minute"]), group["name"]),
    "name": lambda group, _: (group["name"], group["broker"]),
}
"""By the name of the order: worst first, by rate, by use of the quota, by throttle time of the last minute, by name."""
