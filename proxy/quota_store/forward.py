"""The store of quotas that the brokers keep and enforce. Sluice reads these quotas, and never changes them."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeVar

from proxy.config.problem import CONFIGURATION, ConfigProblems, Problem
from proxy.quota_store.store import EMPTY, ContentHolder, Decide, OnContent, StoreUnavailable, SwitchChange
from proxy.telemetry import log
from proxy.telemetry.status import SourceStatus
from quota.admin.messages import IP, EntityKey

T = TypeVar("T")

ASK_EVERY_S: Final = 1.5
"""Interval of the reads: a quota that is set at a broker is known here within 2 s."""
_RATE: Final = "connection_creation_rate"


class BrokersUnavailable(Exception):
    """The brokers did not return their quotas; `str` is one line with place and remedy."""


class StoredQuotas(NamedTuple):
    """The quotas of the brokers, and the address from which Sluice and thus all its clients connect to them."""

    quotas: Mapping[EntityKey, Mapping[str, float]]
    own_host: str


class Brokers(Protocol):
    """Reads quotas from the brokers."""

    async def read(self) -> StoredQuotas:
        """Return the quotas of the brokers.

        Raises:
            BrokersUnavailable: no broker returned them.
        """

    async def close(self) -> None:
        """Hang up."""


class ForwardStore(ContentHolder):
    """Follows the quotas of the brokers. Switches are kept in memory, and are lost when the process ends."""

    def __init__(self, brokers: Brokers, on_content: OnContent, *, now_ms: Callable[[], int], wall_time_s: Callable[[], float]) -> None:
        super().__init__(on_content)
        self._brokers = brokers
        self._now_ms = now_ms
        self._wall_time_s = wall_time_s
        self._success_s = 0.0
        self._success_ms = 0
        self._error: str | None = "not asked yet"
        self._limit: str | None = None

    @property
    def status(self) -> SourceStatus:
        """State of the store for metrics and readiness: whether the brokers respond."""
        return SourceStatus("brokers", len(self.content.quotas), self._success_s, self._success_ms, self._error)

    async def start(self) -> None:
        """Read the quotas for the first time; if no broker responds, start without quotas.

        Raises:
            ConfigProblems: the brokers limit how fast Sluice itself may connect, and with it all its clients.
        """
        await self.reload()
        if self._limit is not None:
            remedy = "remove it, or give Sluice's address a quota that is high enough for all clients"
            raise ConfigProblems([Problem(CONFIGURATION, "quotas.store", self._limit, remedy)])
        self._on_content(self.content, "start")

    async def reload(self) -> bool:
        """Read the quotas now; True: they are in force."""
        try:
            kept = await self._brokers.read()
        except BrokersUnavailable as error:
            if self._error != str(error):
                log.warning("brokers_quotas_unknown", limit_key="brokers_quotas_unknown", problem=str(error))
            self._error = str(error)
            return False
        self._error = None
        self._success_s, self._success_ms = self._wall_time_s(), self._now_ms()
        self._find_limit(kept)
        if kept.quotas != self.content.quotas:
            quotas = {entity: MappingProxyType(dict(values)) for entity, values in kept.quotas.items()}
            self.hold(self.content._replace(quotas=MappingProxyType(quotas)), "outside")
        return True

    async def follow_forever(self) -> None:
        """Read the quotas periodically until cancelled."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            await self.reload()

    async def alter(self, decide: Decide[T]) -> T:
        """Set switches; quotas cannot be set here.

        Raises:
            StoreUnavailable: a change is a change of a quota.
        """
        answer, changes = decide(self.content)
        if any(not isinstance(change, SwitchChange) for change in changes):
            raise StoreUnavailable('quotas.store = "forward": the brokers keep the quotas; set them there, for example with kafka-configs')
        self.make(changes)
        return answer

    async def close(self) -> None:
        """Hang up."""
        await self._brokers.close()

    def _find_limit(self, kept: StoredQuotas) -> None:
        """Record a connection rate at the brokers that limits Sluice, and with it all its clients together."""
        limit = _limit_of(kept)
        if limit is not None and limit != self._limit and self._success_ms and self.content is not EMPTY:
            log.error("brokers_limit_sluice", problem=limit)
        self._limit = limit


def _limit_of(kept: StoredQuotas) -> str | None:
    own = _plain(kept.own_host)
    for entity, values in sorted(kept.quotas.items(), key=lambda item: item[0][0][1] is None):  # the address's rate precedes the default
        (kind, name), *_ = entity
        if kind == IP and _RATE in values and (name is None or _plain(name) == own):
            who = "any address" if name is None else name
            return f"the brokers keep {_RATE} = {values[_RATE]:g} for {who}, and see all clients at Sluice's address {kept.own_host}"
    return None


def _plain(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)
