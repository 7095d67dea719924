"""What the running proxy shows to those who watch it: read by /metrics, /readyz and /quotas, never changed by them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from proxy.counters import Counters, Usage, UsageTable

if TYPE_CHECKING:
    from quota.entity import ClientQuotaType
    from quota.manager import ClientQuotaManager

__all__ = [
    "BrokerQuotas",
    "CallbackStatus",
    "ConnectionInfo",
    "Counters",
    "ProxyState",
    "ReadinessCheck",
    "SourceStatus",
    "Usage",
    "UsageTable",
]


class BrokerQuotas(NamedTuple):
    """The managers whose sensors belong to one broker; with scope `cluster` there is one entry, "cluster"."""

    label: str
    """Node id, or HOST:PORT while it is not known."""
    managers: "Mapping[ClientQuotaType, ClientQuotaManager]"


class SourceStatus(NamedTuple):
    """How it stands with the source of quotas."""

    source: str
    """Its kind and place, such as "file:quotas.toml"; "none" where no quota is set."""
    entries: int
    last_success_s: float
    """Seconds since the epoch when the source was last read and found right; 0 before."""
    last_success_ms: int
    """The same on the monotonic clock."""
    error: str | None
    """Why the last attempt kept the last good values, or None."""


class CallbackStatus(NamedTuple):
    """How it stands with the operator's own callback; all managers together."""

    class_name: str | None
    errors: int
    error: str | None


class ReadinessCheck(NamedTuple):
    """One condition for taking traffic."""

    name: str
    ok: bool
    detail: str


class ConnectionInfo(NamedTuple):
    """A connection at a glance, for JSON."""

    peer: str
    listener: str
    broker: str
    principal: str
    client_id: str
    age_ms: int
    requests: int
    in_flight: int
    paused_for: Sequence[str]
    debt_until_ms: int


class ProxyState(Protocol):
    """What `App` offers to observers. All but `usages` and `counters` are asked on the loop's thread."""

    counters: Counters
    usages: UsageTable

    def mode(self) -> str:
        """Return "delay", "mute" or "observe"."""

    def scope(self) -> str:
        """Return "broker" or "cluster"."""

    def now_ms(self) -> int:
        """Return the monotonic time that sensors know."""

    def wall_time_s(self) -> float:
        """Return seconds since the epoch, for labels."""

    def brokers(self) -> Iterable[BrokerQuotas]:
        """Return the managers of every broker met so far."""

    def quota_source(self) -> SourceStatus:
        """Return the state of the quota source."""

    def callback(self) -> CallbackStatus:
        """Return the state of the operator's callback."""

    def readiness(self) -> Sequence[ReadinessCheck]:
        """Return the conditions: listeners bound, an upstream answered lately, quota source fresh."""

    def connections(self) -> Iterable[ConnectionInfo]:
        """Return the open connections; the caller bounds how many it takes."""
