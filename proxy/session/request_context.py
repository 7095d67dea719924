"""Parsed request headers, which are found again by their bytes."""

from __future__ import annotations

from typing import Any, Final, Protocol

from protocol.api_keys import KNOWN_KEYS, ApiVersion, ThrottlePosition
from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from protocol.request_head import RequestHead
from protocol.steps import Steps
from proxy.enforcement.quota_scope import ClientQuota
from proxy.handler_time import Work
from proxy.meter.usage import UsageCell
from proxy.session.parsed_response import ParsedResponse
from proxy.telemetry.counters import UNKNOWN_KEY

# Kind of request, ordered so that the data path tests `kind >= FETCH` once for all kinds that need more than an entry in the FIFO.
PASS = 0
PRODUCE = 1
FETCH = 2
NO_ACK = 3
ANSWER = 4
MUTATION = 5  # creates or deletes topics or partitions
LOGIN = 6  # SaslHandshake, SaslAuthenticate
ADMIN = 7  # about quotas that Sluice keeps: answered by Sluice
CONFIGS = 8  # about configurations: answered by Sluice when it names users or clients
# Of paced groups: admitted by a schedule before they go. Their responses have contexts of their own (`of_kind`).
PACED = 9
PACED_PRODUCE = 9
PACED_FETCH = 10
PACED_NO_ACK = 11
PACED_ANSWER = 12  # the response to a Produce that announces how long the schedule lets nothing pass
PACED_PASS = 13  # a request without a byte quota; its group of request time may have a schedule

# What to do with the response before it is sent.
AS_IT_IS = 0
WHOLE = 1  # rewritten as a whole frame
WALK = 2  # Fetch 16+: parsed while it passes; its last tag section is checked
ENDPOINTS = 3  # Produce 10+: rewritten only when it names new leaders
BROKERS = 4  # Metadata: held until its brokers, which come first, are complete; topics pass as they arrive

_PRODUCES: Final = frozenset({PRODUCE, NO_ACK, PACED_NO_ACK})

HEADS_MAX: Final = 2_048
PREFIX_BYTES_MAX: Final = 256
"""A request with a longer head is parsed each time, since clients choose the length."""
OPENING_REQUESTS_MAX: Final = 2
"""ApiVersions requests that open a connection: a second one if the broker does not know the version of the first (KIP-511)."""
FETCH_WAIT_MS_MAX: Final = 1_000
"""The longest `max_wait_ms` of a fetch that a quota limits, twice the default of Kafka's consumers: as long as it waits for records at the
broker, other clients of its group cannot use what it may return."""
_NO_SIZE: Final = 1 << 32
"""Size of no request: larger than any."""


class ResponseParser(Protocol):
    """The handling of one request's response, for requests that are checked individually, not by their heads."""

    def parse(self, frame: bytes | memoryview, now_ms: int) -> Steps[ParsedResponse]:
        """Parse the whole response, and return what to send: nothing when it is not for the client."""


class RequestContext:
    """One (API version, client-id, head bytes) of all connections of one kind.

    A request whose bytes from the client-id on equal `prefix` has the same client, acks and fetch limits,
    so it needs no parsing.

    Attributes:
        head_bytes: length of the frame's length field and head, up to the last byte that was parsed.
        is_remembered: whether it is short enough to be cached.
        usual: what is known of its requests in the usual case of a paced group, kept by `UsualRequests`; None: nothing.
    """

    __slots__ = (
        "_answers",
        "api",
        "broker",
        "cap_bound",
        "cap_bytes",
        "cell",
        "client",
        "head_bytes",
        "index",
        "is_bare",
        "is_lowered",
        "is_question",
        "is_remembered",
        "key",
        "kind",
        "latencies",
        "max_bytes",
        "max_bytes_at",
        "max_wait_ms",
        "max_wait_ms_at",
        "may_inherit",
        "min_bytes",
        "min_bytes_at",
        "prefix",
        "rewrite",
        "size_min",
        "ticket",
        "usual",
        "whole",
        "work",
    )

    def __init__(
        self,
        api: ApiVersion,
        client: ClientQuota,
        kind: int,
        rewrite: int,
        prefix: bytes,
        work: Work | None = None,
        cell: UsageCell | None = None,
        broker: str = "",
    ) -> None:
        self.api = api
        self.broker = broker  # label of the broker; empty: that of the client's quota scope
        self.index = api.index
        known = api.key in KNOWN_KEYS
        self.key = api.key if known else UNKNOWN_KEY  # the group that its bytes or mutations count for
        self.latencies = client.latencies(api.key, known=known, broker=broker)
        self.client = client
        self.kind = kind
        self.rewrite = rewrite
        self.cell = cell  # where its usage is metered, and its bytes are counted; None: not metered
        self.work = work  # None: the time of this request is not charged
        # its response is parsed when it is complete
        self.whole = rewrite == WHOLE or api.throttle is ThrottlePosition.WALK or kind == LOGIN
        self.is_bare = kind <= FETCH and rewrite == AS_IT_IS and not api.response_header_version  # its response is not parsed
        self.head_bytes = HEAD_BYTES + len(prefix)
        # a head that is too long to be cached equals no request, so the next one is parsed
        self.is_remembered = len(prefix) <= PREFIX_BYTES_MAX
        self.prefix = prefix if self.is_remembered else b""
        self.size_min = self.head_bytes - LENGTH_BYTES if self.is_remembered else _NO_SIZE
        self.max_bytes: int | None = None  # Fetch: the requested max_bytes, and its offset in the frame
        self.max_bytes_at = 0
        self.min_bytes = 0
        self.min_bytes_at = 0
        self.max_wait_ms = 0  # how long the broker may keep it
        self.max_wait_ms_at = 0
        self.cap_bytes = 0  # the most bytes of its response while `cap_bound` is in force
        self.cap_bound = 0.0
        self.is_lowered = False  # whether that is less than requested, or it may wait for too long
        self.ticket: ResponseParser | None = None
        self.may_inherit = True  # whether its client serves throttles that departed connections left
        self.is_question = False  # a request of Sluice's own for one that it answers
        self.usual: Any = None
        self._answers: dict[int, RequestContext] | None = None

    @property
    def waits_long(self) -> bool:
        """Whether the broker may keep a Fetch for longer than one that a quota limits."""
        return self.max_wait_ms > FETCH_WAIT_MS_MAX

    def take_fetch_fields(self, other: RequestContext | RequestHead) -> None:
        """Take over what a Fetch requests; 0 for fields that its version does not have, but None for `max_bytes`."""
        self.max_bytes, self.max_bytes_at = other.max_bytes, other.max_bytes_at or 0
        self.min_bytes, self.min_bytes_at = other.min_bytes or 0, other.min_bytes_at or 0
        self.max_wait_ms, self.max_wait_ms_at = other.max_wait_ms or 0, other.max_wait_ms_at or 0

    def of_kind(self, kind: int) -> RequestContext:
        """Return the context of another kind for the same requests: of their responses, or where their group has no schedule."""
        answers = self._answers
        if answers is None:
            answers = self._answers = {}
        found = answers.get(kind)
        if found is None:
            found = RequestContext(self.api, self.client, kind, self.rewrite, self.prefix, self.work, self.cell, self.broker)
            found.take_fetch_fields(self)
            found.may_inherit = self.may_inherit
            found.is_remembered, found.prefix, found.size_min = self.is_remembered, self.prefix, self.size_min
            found.head_bytes = self.head_bytes
            answers[kind] = found
        return found

    def count(self, requests: int, request_bytes: int, response_bytes: int, amount_bytes: int) -> None:
        """Add the sizes of requests like this one to the usage of their client.

        Args:
            requests: number of requests.
            request_bytes: sum of the requests.
            response_bytes: sum of the responses.
            amount_bytes: bytes for the byte quota of their kind: size of a Produce request, or of the response to a Fetch.
        """
        cell, kind = self.cell, self.kind
        if cell is not None:
            cell.requests += requests
            cell.request_bytes += request_bytes
            cell.response_bytes += response_bytes
            if kind == FETCH:
                cell.fetch_bytes += amount_bytes
        elif kind == FETCH:
            self.client.usage.own_fetch_bytes += amount_bytes
        elif kind in _PRODUCES:
            self.client.usage.own_produce_bytes += amount_bytes

    def count_time(self, handler_ns: int) -> None:
        """Add handler time of one request to the usage of its client."""
        self.client.usage.request_ns += handler_ns
        if self.cell is not None:
            self.cell.handler_ns += handler_ns


class RequestContexts:
    """Cached heads of all connections; a limited number, since clients choose their bytes."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[object, RequestContext] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def get(self, key: object) -> RequestContext | None:
        """Return the head added under `key`, or None when it was dropped."""
        return self._heads.get(key)

    def add(self, key: object, head: RequestContext) -> None:
        """Cache a head; when the cache is full, all others are dropped. A connection that uses one of them keeps it."""
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[key] = head

    def clear(self) -> None:
        """Drop all, because settings changed and the objects they refer to may be gone."""
        self._heads.clear()
