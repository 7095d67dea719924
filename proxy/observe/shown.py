"""Groups, managers and clients in the form that pages read, implemented by live objects and by reports of other processes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

Urgency = tuple[bool, bool, float]
"""Sort key: groups that are being throttled first, then those with a bound, then by units since the start."""


class PacedState(NamedTuple):
    """The schedule of a paced group.

    Attributes:
        burst_ms: how far it may be ahead of the clock when a request passes.
        lead_ms: how far it is ahead now.
        waiting: number of waiting requests.
    """

    burst_ms: int
    lead_ms: int
    waiting: int


class ShownGroup(Protocol):
    """A group with its broker and quota type."""

    @property
    def broker(self) -> str:
        """Node id, HOST:PORT while unknown, or "cluster"."""

    @property
    def quota_type(self) -> str:
        """Kafka's name of the quota type."""

    @property
    def name(self) -> str:
        """The common tags of the members."""

    @property
    def bound(self) -> float:
        """Units per second; `UNLIMITED` without a quota."""

    @property
    def is_limited(self) -> bool:
        """Whether it has a bound."""

    def urgency(self, now_ms: int) -> Urgency:
        """Return the sort key for the selection of groups; changes no state."""

    def rate(self, now_ms: int) -> float:
        """Return units per second; changes no state."""

    def tokens(self, now_ms: int) -> float | None:
        """Return the balance of a token bucket; None: it is not one. Changes no state."""

    def paced(self, now_ms: int) -> PacedState | None:
        """Return the schedule of a paced group; None: it is not one. Changes no state."""


class ShownManager(Protocol):
    """The groups of one quota type at one broker."""

    @property
    def broker(self) -> str:
        """As in its groups."""

    @property
    def quota_type(self) -> str:
        """Kafka's name of the quota type."""

    @property
    def group_count(self) -> int:
        """Number of groups."""

    @property
    def groups_overflowed(self) -> int:
        """How often a client had to share a group, because there were too many."""

    @property
    def exempt_total(self) -> float | None:
        """Exempt request time in percent-seconds since the start; None: this type has none."""

    def exempt_rate(self, now_ms: int) -> float:
        """Return the current exempt request time in percent, 0 when the type has none; changes no state."""

    def views(self) -> Iterable[ShownGroup]:
        """Return the groups that a page can show, each made on demand."""

    def rest_rate(self) -> float:
        """Return the usage of the groups that `views` leaves out, in units per second."""


class ShownUsage(Protocol):
    """The usage of one user with one client-id; see `Usage`."""

    @property
    def user(self) -> str:
        """Its name, shortened as in tables."""

    @property
    def client_id(self) -> str:
        """Its client-id, shortened as in tables."""

    @property
    def produce_bytes(self) -> int:
        """Bytes of Produce requests."""

    @property
    def fetch_bytes(self) -> int:
        """Bytes of responses to Fetch."""

    @property
    def request_ns(self) -> float:
        """Request time as charged."""

    @property
    def requests(self) -> Sequence[int]:
        """By API key."""

    @property
    def throttled_requests(self) -> Mapping[tuple[str, str], int]:
        """By quota type and matching rule."""

    @property
    def throttle_ms(self) -> Mapping[tuple[str, str], int]:
        """By quota type and matching rule."""

    @property
    def exempt_bytes_total(self) -> int:
        """Bytes in periods in which the user was exempt."""
