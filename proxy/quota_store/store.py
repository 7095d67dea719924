"""The interface of quota stores: content, changes, and alteration by compare-and-set."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from proxy.telemetry.status import SourceStatus
from quota.admin.kraft import Change
from quota.admin.messages import EntityKey

T = TypeVar("T")

Quotas = Mapping[EntityKey, Mapping[str, float]]

Table = Literal["switches", "pacing"]
MODES: Final = ("enforce", "observe", "off")
PACINGS: Final = ("window", "paced")
VALUES: Final[Mapping[Table, Sequence[str]]] = MappingProxyType({"switches": MODES, "pacing": PACINGS})
"""The values of the tables whose keys are targets."""


class StoreContent(NamedTuple):
    """The content of a store. Immutable; a change creates a new one that shares the unchanged parts."""

    quotas: Quotas
    """Values as stored, by entity and key; every entity has a value. The enforced values may differ, see `in_force`."""
    switches: Mapping[str, str]
    """Target -> "enforce", "observe" or "off"; targets: "all", "listener:NAME", "entity:user=alice,client-id=<default>", ..."""
    pacing: Mapping[str, str] = MappingProxyType({})
    """Target -> "window" or "paced"; targets: "all", "group:NAME", "entity:user=alice,client-id=<default>", ..."""

    def table(self, name: Table) -> Mapping[str, str]:
        """Return the table of switches or of pacings."""
        return self.switches if name == "switches" else self.pacing


EMPTY: Final = StoreContent(MappingProxyType({}), MappingProxyType({}))


class SwitchChange(NamedTuple):
    """A switch to set, or in table `pacing` how a quota is enforced; mode None: to remove."""

    target: str
    mode: str | None
    table: Table = "switches"


StoreChange = Change | SwitchChange
Origin = Literal["start", "own", "outside"]
"""The source of a content: the store at the start, an alteration by this process, or another program."""
OnContent = Callable[[StoreContent, Origin], None]
Decide = Callable[[StoreContent], tuple[T, Sequence[StoreChange]]]
"""Takes the content; returns the answer and the changes to make.

It must be pure: it is called again after a conflict with another writer, and not always on the loop's thread."""


class StoreUnavailable(Exception):
    """A change could not be made; `str` is one line with store, problem and remedy.

    Attributes:
        is_certain: True: nothing was changed. False: the connection was lost during the change, so the outcome is not known yet.
    """

    def __init__(self, line: str, *, is_certain: bool = True) -> None:
        super().__init__(line)
        self.is_certain = is_certain


class QuotaStore(Protocol):
    """A store of quotas and switches, for one or several processes.

    The constructor takes a function that the store calls with each new content, on the loop's thread.
    """

    @property
    def content(self) -> StoreContent:
        """The last valid content."""

    @property
    def status(self) -> SourceStatus:
        """State of the store for metrics and readiness."""

    async def start(self) -> None:
        """Read the store for the first time.

        Raises:
            ConfigProblems: there is no valid content to start with.
        """

    async def reload(self) -> bool:
        """Read the store now; True: its content is in force."""

    async def follow_forever(self) -> None:
        """Put the changes of all programs in force within 2 s, until cancelled."""

    async def alter(self, decide: Decide[T]) -> T:
        """Make the changes of `decide`, all or none; return its answer when the changes are durable and in force here.

        Compare-and-set: the changes apply to the content that `decide` was called with. After a conflict with another writer, `decide` is
        called again with the new content.

        Raises:
            StoreUnavailable: the changes are not made, or their outcome is unknown.
        """

    async def close(self) -> None:
        """Close connections, files and threads."""


def different_entities(before: Quotas, after: Quotas) -> list[EntityKey]:
    """Return the entities with changed or removed values. Fast for contents that share their unchanged parts."""
    new = [entity for entity, values in after.items() if (held := before.get(entity)) is not values and held != values]
    if len(before) == len(after) and all(entity in before for entity in new):
        return new
    return [*(entity for entity in before if entity not in after), *new]


class ContentHolder:
    """The content of a store in memory, and the function that is called with each new content."""

    def __init__(self, on_content: OnContent) -> None:
        self.content: StoreContent = EMPTY
        self._on_content = on_content

    def hold(self, content: StoreContent, origin: Origin) -> None:
        """Replace the content; the function is called only if the content differs."""
        if content is not self.content:
            self.content = content
            self._on_content(content, origin)

    def make(self, changes: Sequence[StoreChange]) -> None:
        """Apply changes that this process makes."""
        self.hold(changed(self.content, changes), "own")


def changed(content: StoreContent, changes: Sequence[StoreChange]) -> StoreContent:
    """Return `content` with `changes` applied in order; the same object if the result is equal."""
    quotas: dict[EntityKey, Mapping[str, float]] = {}
    tables: dict[Table, dict[str, str]] = {}
    for change in changes:
        if isinstance(change, SwitchChange):
            put(tables.setdefault(change.table, dict(content.table(change.table))), change.target, change.mode)
        else:
            values = dict(quotas.get(change.entity, content.quotas.get(change.entity, {})))
            put(values, change.key, change.value)
            quotas[change.entity] = values
    merged = content.quotas if not quotas else _merged(content.quotas, quotas)
    made = {name: MappingProxyType(table) for name, table in tables.items() if table != content.table(name)}
    return content if merged is content.quotas and not made else content._replace(quotas=merged, **made)


def put(values: dict[Any, Any], key: Any, value: object) -> None:
    """Set a value; None removes it."""
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _merged(kept: Quotas, new: Quotas) -> Quotas:
    different = {entity: values for entity, values in new.items() if values != kept.get(entity, {})}
    if not different:
        return kept
    merged = dict(kept)
    for entity, values in different.items():
        if values:
            merged[entity] = MappingProxyType(values)
        else:
            del merged[entity]
    return MappingProxyType(merged)
