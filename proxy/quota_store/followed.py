"""Follows the configured store, and puts its content in force."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from proxy.config.problem import CONFIGURATION, ConfigProblems, Problem
from proxy.quota_store.in_force import NOTHING, InForce, QuotaTable, in_force
from proxy.quota_store.store import Decide, OnContent, Origin, QuotaStore, StoreContent, StoreUnavailable
from proxy.telemetry import log
from proxy.telemetry.status import SourceStatus
from quota.admin.messages import EntityKey

T = TypeVar("T")

REPLACED_LOGGED_MAX: Final = 8
INLINE_ENTITIES_MAX: Final = 500
"""Above this number of entities, before or after a change, a thread derives the enforced quotas."""
OTHER_S: Final = 20.0
"""Time limit for the first read of a store that replaces a working one."""
NOT_READ: Final = SourceStatus("none", 0, 0.0, 0, "quotas are not read yet")


class FollowedQuotas:
    """The quotas in force. It outlives the stores, which a reload may replace.

    Each new content is put in force as a whole, in order of arrival, so no request is judged by a part of a change.

    Args:
        apply_table: applies a table of quotas.
        apply_rates: applies connection rates per second, by IP address or host name.

    Attributes:
        listeners: called with each new content, after it is in force.
        origin: the source of the newest content.
        on_settled: awaited after each alteration is in force, before `alter` returns.
    """

    def __init__(self, apply_table: Callable[[QuotaTable], None], apply_rates: Callable[[Mapping[str, int]], None]) -> None:
        self.in_force: InForce = NOTHING
        self.origin: Origin = "start"
        self.listeners: list[OnContent] = []
        self.on_settled: Callable[[], Awaitable[None]] | None = None
        self._apply_table = apply_table
        self._apply_rates = apply_rates
        self._store: QuotaStore | None = None
        self._first: QuotaStore | None = None  # the store during its first read
        self._following: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[StoreContent, Origin]] = deque()
        self._working: asyncio.Task[None] | None = None

    @property
    def content(self) -> StoreContent:
        """The last valid content, which is in force."""
        return self.in_force.content

    @property
    def status(self) -> SourceStatus:
        """State of the store, with the values that are enforced differently from the stored value."""
        store = self._store or self._first
        if store is None:
            return NOT_READ
        return store.status._replace(replaced=len(self.in_force.replaced))

    async def use(self, make: Callable[[OnContent], QuotaStore]) -> None:
        """Create a store, read it, and follow it instead of the previous one.

        Raises:
            ConfigProblems: the store cannot be used; the previous one stays in use.
        """
        contents: list[StoreContent] = []
        current = False

        def take(content: StoreContent, origin: Origin) -> None:
            if current:
                self._take(content, origin)
            else:
                contents.append(content)

        store = self._first = make(take)
        try:
            await asyncio.wait_for(store.start(), None if self._store is None else OTHER_S)
        except TimeoutError:
            await store.close()
            raise ConfigProblems(
                [Problem(CONFIGURATION, "quotas.store", store.status.error or "does not answer", "reload again")]
            ) from None
        except BaseException:
            await store.close()
            raise
        finally:
            self._first = None
        await self._let_go()
        self._store, current = store, True
        self._take(contents[-1] if contents else store.content, "start")
        await self._settled()
        self._following = asyncio.create_task(store.follow_forever())

    async def reload(self) -> bool:
        """Read the store now; True: its content is in force."""
        assert self._store is not None
        is_good = await self._store.reload()
        await self._settled()
        return is_good

    async def alter(self, decide: Decide[T]) -> T:
        """Make the changes of `decide`, all or none; return its answer when they are in force.

        Raises:
            StoreUnavailable: the changes are not made, or their outcome is unknown.
        """
        if self._store is None:
            raise StoreUnavailable("quotas are not read yet; try again, nothing was changed")
        answer = await self._store.alter(decide)
        await self._settled()
        if self.on_settled is not None:
            await self.on_settled()
        return answer

    async def close(self) -> None:
        """Stop following, and close the store."""
        await self._let_go()
        await self._settled()

    async def _let_go(self) -> None:
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        if self._store is not None:
            await self._store.close()
        self._following = None

    def _take(self, content: StoreContent, origin: Origin) -> None:
        """Put a new content in force: at once if it is small, otherwise after a thread has derived the quotas."""
        if self._working is None and max(len(content.quotas), len(self.content.quotas)) <= INLINE_ENTITIES_MAX:
            self._put(in_force(content, self.in_force), origin)
            return
        if origin == "outside" and self._waiting and self._waiting[-1][1] == "outside":
            self._waiting.pop()  # superseded before it was put in force
        self._waiting.append((content, origin))
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting:
                content, origin = self._waiting.popleft()
                self._put(await asyncio.to_thread(in_force, content, self.in_force), origin)
        finally:
            self._working = None

    async def _settled(self) -> None:
        """Wait until every content that has arrived is in force."""
        while self._working is not None:
            await asyncio.shield(self._working)

    def _put(self, new: InForce, origin: Origin) -> None:
        content, before, self.in_force = new.content, self.in_force, new
        self.origin = origin
        self._log_replaced(before.replaced)
        if new.table is not before.table or origin == "start":
            self._apply_table(new.table)
        if new.connection_rates is not before.connection_rates or origin == "start":
            self._apply_rates(new.connection_rates)
        for listener in self.listeners:
            listener(content, origin)

    def _log_replaced(self, known: Mapping[tuple[EntityKey, str], float]) -> None:
        new = [(where, bound) for where, bound in self.in_force.replaced.items() if where not in known]
        for (entity, key), bound in new[:REPLACED_LOGGED_MAX]:
            name = ", ".join(f"{kind} {name or '<default>'}" for kind, name in entity)
            log.warning("quota_not_enforced_as_kept", entity=name, key=key, kept=self.content.quotas[entity][key], enforced=bound)
