"""Groups, managers and clients as pages read them: implemented by live objects and by reports of other processes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

Urgency = tuple[bool, bool, float]
"""Groups that are being throttled come first, then those with a bound, then those with the most units since the start."""


class ShownGroup(Protocol):
    """A group with its broker and quota type."""

    @property
    def broker(self) -> str:
        """Node id, HOST:PORT while it is not known, or "cluster"."""

    @property
    def quota_type(self) -> str:
        """Kafka's name of it."""

    @property
    def name(self) -> str:
        """What the members have in common."""

    @property
    def bound(self) -> float:
        """Units per second; `UNLIMITED` without a quota."""

    @property
    def is_limited(self) -> bool:
        """Whether it has a bound."""

    def urgency(self, now_ms: int) -> Urgency:
        """Return what groups are chosen by where there are too many; changes nothing."""

    def rate(self, now_ms: int) -> float:
        """Return units per second; changes nothing."""

    def tokens(self, now_ms: int) -> float | None:
        """Return the balance of a token bucket; None: it is none. Changes nothing."""


class ShownManager(Protocol):
    """The groups of one quota type at one broker."""

    @property
    def broker(self) -> str:
        """As of its groups."""

    @property
    def quota_type(self) -> str:
        """Kafka's name of it."""

    @property
    def group_count(self) -> int:
        """How many groups there are."""

    @property
    def groups_overflowed(self) -> int:
        """How often a client had to share a group, because there were too many."""

    @property
    def exempt_total(self) -> float | None:
        """Request time that no quota applies to, in percent-seconds since the start; None: this type has none."""

    def exempt_rate(self, now_ms: int) -> float:
        """Return the same in percent now, 0 where the type has none; changes nothing."""

    def views(self) -> Iterable[ShownGroup]:
        """Return the groups that a page can show, each put together when it is asked for."""

    def rest_rate(self) -> float:
        """Return what groups that `views` leaves out use together, in units per second."""


class ShownUsage(Protocol):
    """The usage of one user with one client-id; see `Usage`."""

    @property
    def user(self) -> str:
        """Its name as it is kept."""

    @property
    def client_id(self) -> str:
        """Its client-id as it is kept."""

    @property
    def produce_bytes(self) -> int:
        """Bytes of Produce requests."""

    @property
    def fetch_bytes(self) -> int:
        """Bytes of answers to Fetch."""

    @property
    def request_ns(self) -> float:
        """Time of the brokers' threads, as it is charged."""

    @property
    def requests(self) -> Sequence[int]:
        """By API key."""

    @property
    def throttled_requests(self) -> Mapping[tuple[str, str], int]:
        """By quota type and the rule that matched."""

    @property
    def throttle_ms(self) -> Mapping[tuple[str, str], int]:
        """By quota type and the rule that matched."""

    @property
    def exempt_bytes_total(self) -> int:
        """Bytes that passed while no quota applied to the user by name."""
