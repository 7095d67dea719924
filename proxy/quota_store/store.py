"""The interface of quota stores: content, changes, and how a change is made."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from proxy.telemetry.status import SourceStatus
from quota.admin.kraft import Change
from quota.admin.messages import EntityKey

T = TypeVar("T")

Quotas = Mapping[EntityKey, Mapping[str, float]]

MODES: Final = ("enforce", "observe", "off")
"""What a switch can say."""


class StoreContent(NamedTuple):
    """The content of a store. It is immutable; a change makes a new one, which shares the unchanged parts."""

    quotas: Quotas
    """Values as they are kept, by entity and key; no entity without a value. What is in force may differ: `in_force`."""
    switches: Mapping[str, str]
    """Target -> "enforce", "observe" or "off"; targets: "all", "listener:NAME", "entity:user=alice,client-id=<default>", ..."""


EMPTY: Final = StoreContent(MappingProxyType({}), MappingProxyType({}))


class SwitchChange(NamedTuple):
    """One switch to be set or, with None, to be removed."""

    target: str
    mode: str | None


StoreChange = Change | SwitchChange
Origin = Literal["start", "own", "outside"]
"""Who made the content: it was there at the start, this process altered it, or another program did."""
OnContent = Callable[[StoreContent, Origin], None]
Decide = Callable[[StoreContent], tuple[T, Sequence[StoreChange]]]
"""Looks at the content and says what to answer and what to change.

Pure: called again when another writer was first, and not always on the loop's thread."""


class StoreUnavailable(Exception):
    """A change could not be made; `str` is one line with place and remedy.

    Attributes:
        is_certain: nothing was changed. False: the connection was lost during the change, whose result is known when it is back.
    """

    def __init__(self, line: str, *, is_certain: bool = True) -> None:
        super().__init__(line)
        self.is_certain = is_certain


class QuotaStore(Protocol):
    """Keeps quotas and switches, for one process or for several.

    A store is made with a function that it calls with every new content, on the loop's thread.
    """

    @property
    def content(self) -> StoreContent:
        """The last good content."""

    @property
    def status(self) -> SourceStatus:
        """How it stands, for metrics and readiness."""

    async def start(self) -> None:
        """Read everything for the first time.

        Raises:
            ConfigProblems: then there is nothing to start with.
        """

    async def reload(self) -> bool:
        """Look now; True when what is kept there is in force."""

    async def follow_forever(self) -> None:
        """Put the changes of all programs in force within 2 s, until cancelled."""

    async def alter(self, decide: Decide[T]) -> T:
        """Make the changes that `decide` wants, all or none, and return what it answers.

        Compare-and-set: changes are made to the very content that `decide` saw; when another program wrote meanwhile it is called again.
        Returns when they are kept durably and in force here.

        Raises:
            StoreUnavailable: they are not.
        """

    async def close(self) -> None:
        """Let go of everything."""


def different_entities(before: Quotas, after: Quotas) -> list[EntityKey]:
    """Return the entities that have other values than before, or none any more. Quick where contents share what stayed the same."""
    new = [entity for entity, values in after.items() if (held := before.get(entity)) is not values and held != values]
    if len(before) == len(after) and all(entity in before for entity in new):
        return new
    return [*(entity for entity in before if entity not in after), *new]


class Held:
    """Content that this process holds, and the function that is called with new content."""

    def __init__(self, on_content: OnContent) -> None:
        self.content: StoreContent = EMPTY
        self._on_content = on_content

    def hold(self, content: StoreContent, origin: Origin) -> None:
        """Put content in the place of what there was; the same content is not announced again."""
        if content is not self.content:
            self.content = content
            self._on_content(content, origin)

    def make(self, changes: Sequence[StoreChange]) -> None:
        """Make changes of this process."""
        self.hold(changed(self.content, changes), "own")


def changed(content: StoreContent, changes: Sequence[StoreChange]) -> StoreContent:
    """Return `content` with `changes` made in their order; the same object where nothing is different."""
    quotas: dict[EntityKey, Mapping[str, float]] = {}
    switches: dict[str, str] | None = None
    for change in changes:
        if isinstance(change, SwitchChange):
            switches = dict(content.switches) if switches is None else switches
            _put(switches, change.target, change.mode)
        else:
            values = dict(quotas.get(change.entity, content.quotas.get(change.entity, {})))
            _put(values, change.key, change.value)
            quotas[change.entity] = values
    merged = content.quotas if not quotas else _merged(content.quotas, quotas)
    if switches is None or switches == content.switches:
        return content if merged is content.quotas else content._replace(quotas=merged)
    return StoreContent(merged, MappingProxyType(switches))


def _put(values: dict[str, Any], key: str, value: object) -> None:
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
