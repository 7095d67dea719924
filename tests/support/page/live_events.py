"""Reads the events of the live page."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import aiohttp


class LiveEvent(NamedTuple):
    """One event of the stream."""

    name: str
    data: Any


def event_of(text: bytes) -> LiveEvent:
    """Return the event that a text describes."""
    first, second = text.decode().strip().split("\n")
    return LiveEvent(first.removeprefix("event: "), json.loads(second.removeprefix("data: ")))


async def read_event(response: aiohttp.ClientResponse) -> LiveEvent:
    """Return the next event of a stream."""
    return event_of(await response.content.readuntil(b"\n\n"))


class Follower:
    """Keeps the state that events describe, as the page does.

    Attributes:
        groups: by number; texts and numbers by field.
    """

    def __init__(self) -> None:
        self.head: dict[str, Any] = {}
        self.groups: dict[int, dict[str, Any]] = {}
        self._fields: list[str] = []

    def apply(self, event: LiveEvent) -> None:
        """Apply an event."""
        data = event.data
        if event.name == "everything":
            self.head, self._fields = {}, data["fields"]
            self.groups = {}
        self.head |= data["head"]
        for number, *values in [*data.get("groups", []), *data.get("added", [])]:
            self.groups[number] = dict(zip(self._fields, values, strict=True))
        for number, *values in data.get("changed", []):
            self.groups[number] |= zip(self._fields[-len(values) :], values, strict=True)
        for number in data.get("removed", []):
            del self.groups[number]

    def named(self, name: str) -> Mapping[str, Any]:
        """Return the group with a name."""
        (found,) = [group for group in self.groups.values() if group["name"] == name]
        return found
