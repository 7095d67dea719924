"""Records of the topic store, and the content that results from them. The last record of a key counts; a null value removes the key.

Keys:   {"entity":{"client-id":null,"user":"alice"},"key":"producer_byte_rate"}, {"switch":"all"} or {"pacing":"all"}; null is the
        default entity.
Values: {"version":1,"value":1048576.0}, {"version":1,"mode":"observe"} or {"version":1,"mode":"paced"}; infinity is the text "Infinity".
"""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from proxy.quota_store.store import EMPTY, VALUES, StoreChange, StoreContent, SwitchChange, Table, put
from quota.admin.keys import keys_of
from quota.admin.kraft import Change
from quota.admin.messages import CLIENT_ID, IP, USER, EntityKey, entity_key

VERSION: Final = 1
INFINITY: Final = "Infinity"
_KEYS: Final[Mapping[Table, str]] = MappingProxyType({"switches": "switch", "pacing": "pacing"})
_SHAPES: Final = ({USER}, {CLIENT_ID}, {USER, CLIENT_ID}, {IP})


class BadRecord(Exception):
    """A record that no Sluice writes; the text has the problem, but not the content."""


class Place(NamedTuple):
    """The subject of a record: a value of an entity, or a target of a table."""

    entity: EntityKey
    key: str
    target: str = ""
    table: Table = "switches"


def write_record(change: StoreChange) -> tuple[bytes, bytes | None]:
    """Return key and value of the record for a change; value None: a tombstone."""
    if isinstance(change, SwitchChange):
        key: dict[str, Any] = {_KEYS[change.table]: change.target}
        value = None if change.mode is None else msgspec.json.encode({"version": VERSION, "mode": change.mode})
        return msgspec.json.encode(key), value
    key = {"entity": dict(change.entity), "key": change.key}
    if change.value is None:
        return msgspec.json.encode(key), None
    number = change.value if math.isfinite(change.value) else INFINITY
    return msgspec.json.encode(key), msgspec.json.encode({"version": VERSION, "value": number})


def read_place(key: bytes | None) -> Place:
    """Return the subject of a record.

    Raises:
        BadRecord: the key has none.
    """
    fields = _decoded(key, "its key")
    for table, name in _KEYS.items():
        if set(fields) == {name} and isinstance(fields[name], str):
            return Place((), "", fields[name], table)
    entity, quota = fields.get("entity"), fields.get("key")
    if set(fields) != {"entity", "key"} or not isinstance(entity, dict) or set(entity) not in _SHAPES:
        raise BadRecord("its key names no entity")
    if not all(part is None or (isinstance(part, str) and part) for part in entity.values()):
        raise BadRecord("its key names no entity")
    parts = entity_key(list(entity.items()))
    if quota not in keys_of(parts):
        raise BadRecord("its key names no quota of such an entity")
    return Place(parts, str(quota))


def read_value(place: Place, data: bytes) -> float | str:
    """Return the quota value, or the mode of a switch, of a record.

    Raises:
        BadRecord: the value is not valid for `place`.
    """
    fields = _decoded(data, "its value")
    if fields.get("version") != VERSION:
        raise BadRecord("its value has another version")
    if place.target:
        if fields.get("mode") not in VALUES[place.table]:
            raise BadRecord("its value is not a mode of a switch" if place.table == "switches" else "its value is no pacing")
        return str(fields["mode"])
    value = fields.get("value")
    if value == INFINITY:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadRecord("its value is not a number")
    return float(value)


def _decoded(data: bytes | None, what: str) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(data or b"")
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise BadRecord(f"{what} is not JSON") from None
    if not isinstance(fields, dict):
        raise BadRecord(f"{what} is not a table")
    return fields


class TopicState:
    """The content that results from records in order. If the newest record of a key is invalid, the last valid one counts.

    Args:
        good: earlier state, for keys that have an invalid newest record and no older one after compaction.
        merged: whether all of the earlier state applies until a record replaces it.
    """

    def __init__(self, good: "TopicState | None" = None, *, merged: bool = False) -> None:
        self._good = None if good is None else good.content()
        begin = self._good if merged and self._good is not None else EMPTY
        self._quotas: dict[EntityKey, Mapping[str, float]] = dict(begin.quotas)
        self._tables: dict[Table, dict[str, str]] = {name: dict(begin.table(name)) for name in VALUES}
        self._wrong: dict[bytes, str] = {}
        self._content: StoreContent | None = None

    @property
    def rejected(self) -> int:
        """Number of keys with an invalid newest record."""
        return len(self._wrong)

    @property
    def problems(self) -> list[str]:
        """Descriptions of some invalid records."""
        return list(self._wrong.values())[:8]

    def apply(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record; an invalid one changes no content, and is counted."""
        self._wrong.pop(key or b"", None)
        place: Place | None = None
        try:
            place = read_place(key)
            read = None if value is None else read_value(place, value)
        except BadRecord as bad:
            if value is not None:
                self._wrong[key or b""] = f"record {offset}: {bad}"
            read = None if place is None else self._held(place)
            if place is None or read is None:
                return
        self._content = None
        if place.target:
            put(self._tables[place.table], place.target, read)
            return
        values = dict(self._quotas.get(place.entity, {}))
        put(values, place.key, read)
        put(self._quotas, place.entity, MappingProxyType(values) if values else None)

    def _held(self, place: Place) -> float | str | None:
        """Return the last valid value: of this state, otherwise of the earlier one."""
        if place.target:
            here = self._tables[place.table].get(place.target)
            return here or (self._good.table(place.table).get(place.target) if self._good is not None else None)
        held = self._quotas.get(place.entity, {}).get(place.key)
        if held is None and self._good is not None:
            held = self._good.quotas.get(place.entity, {}).get(place.key)
        return held

    def content(self) -> StoreContent:
        """Return the resulting content."""
        if self._content is None:
            tables = {name: MappingProxyType(dict(table)) for name, table in self._tables.items()}
            self._content = StoreContent(MappingProxyType(dict(self._quotas)), **tables)
        return self._content


def records_of(content: StoreContent, changes: Iterable[StoreChange]) -> list[tuple[bytes, bytes | None]]:
    """Return the records for `changes` to `content`: one for each key with a different value."""
    latest: dict[bytes, tuple[StoreChange, bytes | None]] = {}
    for change in changes:
        key, value = write_record(change)
        latest[key] = (change, value)
    return [(key, value) for key, (change, value) in latest.items() if _is_new(content, change)]


def _is_new(content: StoreContent, change: StoreChange) -> bool:
    if isinstance(change, Change):
        return content.quotas.get(change.entity, {}).get(change.key) != change.value
    return content.table(change.table).get(change.target) != change.mode
