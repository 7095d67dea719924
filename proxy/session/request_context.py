"""Parsed request headers, recognised by their bytes afterwards."""

from __future__ import annotations

from typing import Final, Protocol

from protocol.api_keys import KNOWN_KEYS, ApiVersion, ThrottlePosition
from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from protocol.steps import Steps
from proxy.enforcement.quota_scope import ClientQuota
from proxy.handler_time import Work
from proxy.meter.usage import UsageCell
from proxy.session.looked import Looked
from proxy.telemetry.counters import UNKNOWN_KEY

# What kind of request: ordered, so that the data path asks `kind >= FETCH` once for all that needs more than a note.
PASS = 0
PRODUCE = 1
FETCH = 2
NO_ACK = 3
ANSWER = 4
MUTATION = 5  # makes or deletes topics or partitions
LOGIN = 6  # SaslHandshake, SaslAuthenticate
ADMIN = 7  # about quotas that Sluice keeps: answered here
CONFIGS = 8  # about configurations: answered here where it names users or clients

# What has to happen to the answer before it leaves.
AS_IT_IS = 0
WHOLE = 1  # rewritten as a whole frame
WALK = 2  # Fetch 16+: followed while it passes, its last tag section is looked at
ENDPOINTS = 3  # Produce 10+: rewritten only where it names new leaders
BROKERS = 4  # Metadata: held as far as its brokers, which come first; topics pass as they come

_PRODUCES: Final = frozenset({PRODUCE, NO_ACK})

HEADS_MAX: Final = 2_048
PREFIX_BYTES_MAX: Final = 256
"""A request whose head is longer is read anew each time: clients choose how long it is."""
_NO_SIZE: Final = 1 << 32
"""Of a frame: no request is as large."""


class AnswerOfOne(Protocol):
    """What one request's answer means: for requests that are judged one by one, not by their heads."""

    def look(self, frame: bytes | memoryview, now_ms: int) -> Steps[Looked]:
        """Take in the whole answer, and say what of it may leave: nothing when it is not the client's."""


class RequestContext:
    """One (API version, client-id, head bytes) of all connections of one kind.

    A request whose bytes from the client-id on equal `prefix` has the same client, acks and fetch limits,
    so nothing of it needs to be parsed again.

    Attributes:
        head_bytes: of the frame's length and head, up to the last byte that was looked at.
        is_remembered: it is short enough to be kept beyond its request.
    """

    __slots__ = (
        "api",
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
        "may_inherit",
        "min_bytes",
        "min_bytes_at",
        "prefix",
        "rewrite",
        "size_min",
        "ticket",
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
    ) -> None:
        self.api = api
        self.index = api.index
        known = api.key in KNOWN_KEYS
        self.key = api.key if known else UNKNOWN_KEY  # under which it is counted
        self.latencies = client.latencies(api.key, known=known)
        self.client = client
        self.kind = kind
        self.rewrite = rewrite
        self.cell = cell  # where its usage is metered, and its bytes are counted; None: nothing is metered
        self.work = work  # None: the time of this request is not charged
        # its answer is looked at when it is here in whole
        self.whole = rewrite == WHOLE or api.throttle is ThrottlePosition.WALK or kind == LOGIN
        self.is_bare = kind <= FETCH and rewrite == AS_IT_IS and not api.response_header_version  # its answer has nothing to look at
        self.head_bytes = HEAD_BYTES + len(prefix)
        # what is too long to be remembered is like no request: the next one is read anew
        self.is_remembered = len(prefix) <= PREFIX_BYTES_MAX
        self.prefix = prefix if self.is_remembered else b""
        self.size_min = self.head_bytes - LENGTH_BYTES if self.is_remembered else _NO_SIZE
        self.max_bytes: int | None = None  # Fetch: what the client asked for, and where it stands in the frame
        self.max_bytes_at = 0
        self.min_bytes = 0
        self.min_bytes_at = 0
        self.cap_bytes = 0  # the most that it may bring while `cap_bound` is in force
        self.cap_bound = 0.0
        self.is_lowered = False  # whether that is less than it asks for
        self.ticket: AnswerOfOne | None = None
        self.may_inherit = True  # its client waits for what departed connections of its groups left
        self.is_question = False  # ours, on behalf of a request that is answered here

    def count(self, requests: int, request_bytes: int, response_bytes: int, amount_bytes: int) -> None:
        """Add what requests like this one used to the usage of their client.

        Args:
            requests: how many of them.
            request_bytes: of all these requests.
            response_bytes: of all their answers.
            amount_bytes: what counts for the byte quota of their kind: the size of a Produce request, of the answer to a Fetch.
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
    """Known heads of all connections; a bounded number, since clients choose their bytes."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[object, RequestContext] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def get(self, key: object) -> RequestContext | None:
        """What was added under `key`, unless it was dropped since."""
        return self._heads.get(key)

    def add(self, key: object, head: RequestContext) -> None:
        """Keep a head; when too many are kept, all others are dropped. A connection that still has one of them keeps it."""
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[key] = head

    def clear(self) -> None:
        """Drop all: settings changed, and what they refer to may be gone."""
        self._heads.clear()
