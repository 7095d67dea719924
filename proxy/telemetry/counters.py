"""Counters of the data path: plain integers that a scrape only reads.

No lock: one thread writes, others read a value that is a moment old.
"""

from collections.abc import Hashable
from typing import Final, Protocol

from proxy.telemetry.latency import ApiLatencies
from quota.names import kept_name

API_KEYS_MAX: Final = 96
UNKNOWN_KEY: Final = API_KEYS_MAX - 1
"""Where requests of all keys are counted that the table of APIs lacks; they pass only if the operator says so."""
USAGES_MAX: Final = 10_000
"""Each holds 96 numbers that a full garbage collection looks at: more of them would stall the loop for longer than 50 ms."""
USAGES_PER_MAKER_MAX: Final = 1_000
"""Where half of the table is taken, one maker gets no more than so many by changing client-ids: the other half is for others."""
OTHER: Final = "__other__"
"""Who is counted together with others, because the table or the number of series is full."""

THROTTLE_BUCKETS_MS: Final = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000)
"""Upper edges of the throttle histogram; what is longer goes to one bucket more."""


class ThrottleHistogram:
    """How long the throttles of one quota type were."""

    __slots__ = ("buckets", "sum_ms")

    def __init__(self) -> None:
        self.buckets = [0] * (len(THROTTLE_BUCKETS_MS) + 1)
        self.sum_ms = 0

    def record(self, throttle_ms: int) -> None:
        """Count one throttle of `throttle_ms`."""
        at = 0
        for edge in THROTTLE_BUCKETS_MS:
            if throttle_ms <= edge:
                break
            at += 1
        self.buckets[at] += 1
        self.sum_ms += throttle_ms


class MeteringCounts:
    """What became of metering. Two threads write, each its own numbers."""

    __slots__ = (
        "conversion_failures",
        "decisions",
        "done_bytes",
        "dropped_decisions",
        "dropped_usage_rows",
        "file_sets_published",
        "file_sets_removed",
        "handed_bytes",
        "last_error",
        "publish_failures",
        "segments",
        "usage_rows",
        "write_errors",
    )

    def __init__(self) -> None:
        self.decisions = 0
        """Written to segments."""
        self.usage_rows = 0
        self.dropped_decisions = 0
        """For which there was no room."""
        self.dropped_usage_rows = 0
        self.segments = 0
        self.write_errors = 0
        self.last_error = ""
        self.conversion_failures = 0
        """Attempts to turn segments into files."""
        self.file_sets_removed = 0
        """By retention."""
        self.file_sets_published = 0
        self.publish_failures = 0
        self.handed_bytes = 0
        """By the loop to the writer."""
        self.done_bytes = 0
        """Of them written."""

    @property
    def waiting_bytes(self) -> int:
        """About how much waits to be written."""
        return self.handed_bytes - self.done_bytes


class ShadowCounts:
    """What brokers that enforce the same quotas announced beside what Sluice would, by quota type; milliseconds."""

    __slots__ = ("broker_ms", "difference_ms", "sluice_ms", "verdicts")

    def __init__(self) -> None:
        self.broker_ms: dict[str, int] = {}
        self.sluice_ms: dict[str, int] = {}
        self.difference_ms: dict[str, int] = {}
        self.verdicts: dict[tuple[str, str], int] = {}
        """Responses that were throttled, by whom: "both", "broker" or "sluice"."""

    def compared(self, quota_type: str, broker_ms: int, sluice_ms: int) -> None:
        """Count the two throttles of one answer."""
        if broker_ms <= 0 >= sluice_ms:
            return
        self.broker_ms[quota_type] = self.broker_ms.get(quota_type, 0) + broker_ms
        self.sluice_ms[quota_type] = self.sluice_ms.get(quota_type, 0) + sluice_ms
        self.difference_ms[quota_type] = self.difference_ms.get(quota_type, 0) + abs(broker_ms - sluice_ms)
        by = "sluice" if broker_ms <= 0 else "broker" if sluice_ms <= 0 else "both"
        self.verdicts[quota_type, by] = self.verdicts.get((quota_type, by), 0) + 1


class AdministrationCounts:
    """What became of requests to read or change quotas, by the way they came: "kafka", "http"; "outside" in the store."""

    __slots__ = ("audit_failures", "authority_is_trusted", "changes", "denials")

    def __init__(self) -> None:
        self.changes: dict[str, int] = {}
        """Values and switches that were changed."""
        self.denials: dict[str, int] = {}
        """How often a request about quotas was denied."""
        self.audit_failures = 0
        """Lines, or several at once, that the audit log did not take."""
        self.authority_is_trusted = True
        """False: an account without rights was not refused by the brokers, so that their consent means nothing."""


class Counters:
    """Of the whole process. Dictionaries are keyed by text that is ours (a listener, a reason), never by a client's."""

    __slots__ = (
        "accepts_exhausted",
        "accepts_waited",
        "administration",
        "buffer_bytes_max",
        "buffered_bytes",
        "bytes_from_brokers",
        "bytes_from_clients",
        "certificate_expiries_s",
        "certificates_rejected",
        "closes",
        "config_reloads_rejected",
        "config_reloads_succeeded",
        "connections_accepted",
        "connections_open",
        "discarded_request_bytes",
        "gc_long",
        "gc_ns",
        "internal_errors",
        "latencies",
        "logins",
        "memory_pauses",
        "memory_pressure",
        "metering",
        "plain_exposed",
        "principal_builder_faults",
        "proxy_headers",
        "proxy_headers_waiting",
        "requests",
        "responses",
        "shadow",
        "throttles",
        "unmapped",
        "upstream_connect_failures",
        "upstream_connects",
    )

    def __init__(self) -> None:
        self.connections_accepted: dict[str, int] = {}
        """By the listener's name; those that are turned away afterwards too."""
        self.accepts_exhausted = 0
        """How often accepting stopped for a moment because the process or the system had no open file left."""
        self.accepts_waited = 0
        """How often a listener stopped accepting because of a rate, or for want of a slot."""
        self.administration = AdministrationCounts()
        self.shadow = ShadowCounts()
        self.certificate_expiries_s: dict[str, float] = {}
        """Wall time at which each certificate in use ends, by whose it is."""
        self.certificates_rejected = 0
        """Changes of their files that could not be taken over."""
        self.buffered_bytes = 0
        """What all connections held when last looked at; once a second."""
        self.buffer_bytes_max = 0
        self.memory_pauses = 0
        self.memory_pressure = 0
        """0: none, 1: the sides with the largest backlogs are not read, 2: no new connection is accepted either."""
        self.metering = MeteringCounts()
        self.connections_open = 0
        self.discarded_request_bytes = 0
        """Of whole requests that had not gone on when the connection of a client that had closed its side ended."""
        self.closes: dict[str, int] = {}
        """By close reason."""
        self.logins: dict[tuple[str, str], int] = {}
        """Exchanges that the broker ended, by mechanism and outcome: "success", "unknown" (accepted, user not known), "failure"."""
        self.plain_exposed = 0
        """Logins by PLAIN that crossed a network without TLS."""
        self.principal_builder_faults = 0
        self.proxy_headers: dict[str, int] = {}
        """PROXY headers read: "address", "unknown" or "local"."""
        self.proxy_headers_waiting = 0
        """Connections of load balancers whose header is not here yet."""
        self.requests = 0
        self.responses = 0
        self.bytes_from_clients = 0
        self.bytes_from_brokers = 0
        """These four: of connections that have ended; those that live keep their own."""
        self.upstream_connects = 0
        self.upstream_connect_failures = 0
        self.unmapped = 0
        """Addresses in answers that are no listener of ours, or brokers whose port could not be bound."""
        self.config_reloads_succeeded = 0
        self.config_reloads_rejected = 0
        self.internal_errors = 0
        """Exceptions of our own that nothing expected, most of which ended a connection: each is a bug."""
        self.gc_ns = 0
        """What the garbage collector took, during which nothing else ran."""
        self.gc_long = 0
        """How often it took 20 ms and more at a time."""
        self.latencies = ApiLatencies()
        self.throttles: dict[str, ThrottleHistogram] = {}
        """By quota type."""

    def throttled(self, quota_type: str, throttle_ms: int) -> None:
        """Count one verdict above zero of `quota_type` ("Produce", "Fetch", ...)."""
        histogram = self.throttles.get(quota_type)
        if histogram is None:
            histogram = self.throttles[quota_type] = ThrottleHistogram()
        histogram.record(throttle_ms)


def bump(counts: dict[str, int], key: str, by: int = 1) -> None:
    """Raise `counts[key]`, which may be new."""
    counts[key] = counts.get(key, 0) + by


class CountsBytes(Protocol):
    """Counts bytes of requests, and those that are fetched, since it was made."""

    request_bytes: int
    fetch_bytes: int


class UsageShare:
    """How many entries of tables one maker has: a user, or clients of one address without a known user."""

    __slots__ = ("cells", "usages")

    def __init__(self) -> None:
        self.usages = 0
        self.cells = 0


class Usage:
    """What one user with one client-id did since the process began.

    Attributes:
        own_produce_bytes, own_fetch_bytes: what nothing else counts.
        share: of who made it.
    """

    __slots__ = (
        "_exempt_since",
        "_fetched_by",
        "_produced_by",
        "client_id",
        "exempt_bytes",
        "own_fetch_bytes",
        "own_produce_bytes",
        "request_ns",
        "requests",
        "share",
        "throttle_ms",
        "throttled_requests",
        "user",
    )

    def __init__(self, user: str, client_id: str, share: UsageShare | None = None) -> None:
        self.user = user
        self.client_id = client_id
        self.share = UsageShare() if share is None else share
        self.own_produce_bytes = 0
        self.own_fetch_bytes = 0
        self._produced_by: tuple[CountsBytes, ...] = ()
        self._fetched_by: tuple[CountsBytes, ...] = ()
        self.request_ns = 0.0
        """Time of the brokers' threads, as it is charged."""
        self.requests = [0] * API_KEYS_MAX
        """By API key."""
        self.throttled_requests: dict[tuple[str, str], int] = {}
        """By quota type and the rule that matched."""
        self.throttle_ms: dict[tuple[str, str], int] = {}
        """By quota type and the rule that matched."""
        self.exempt_bytes = 0
        """Produced and fetched while the user was exempt, as far as that is over."""
        self._exempt_since: int | None = None  # so many bytes had passed when it became so

    @property
    def produce_bytes(self) -> int:
        """Bytes of Produce requests. Never less than before, though a thread may ask that does not count."""
        return self.own_produce_bytes + sum([cell.request_bytes for cell in self._produced_by])

    @property
    def fetch_bytes(self) -> int:
        """Bytes of answers to Fetch."""
        return self.own_fetch_bytes + sum([cell.fetch_bytes for cell in self._fetched_by])

    def produced_by(self, cell: CountsBytes) -> None:
        """Take the bytes of Produce requests that are counted there for bytes of this one."""
        self._produced_by += (cell,)

    def fetched_by(self, cell: CountsBytes) -> None:
        """Take the bytes of answers to Fetch that are counted there for bytes of this one."""
        self._fetched_by += (cell,)

    def count_exempt(self, is_exempt: bool) -> None:
        """From here on no quota applies to this user by name, or one may again."""
        since, total = self._exempt_since, self.produce_bytes + self.fetch_bytes
        if is_exempt and since is None and self.user != OTHER:
            self._exempt_since = total
        elif not is_exempt and since is not None:
            self.exempt_bytes += total - since
            self._exempt_since = None

    @property
    def exempt_bytes_total(self) -> int:
        """Bytes that passed while no quota applied to this user by name."""
        since = self._exempt_since
        return self.exempt_bytes + (0 if since is None else self.produce_bytes + self.fetch_bytes - since)

    def throttled(self, quota_type: str, rule: str, throttle_ms: int) -> None:
        """Count one verdict above zero; `rule` names the entity whose quota it was."""
        key = (quota_type, rule)
        self.throttled_requests[key] = self.throttled_requests.get(key, 0) + 1
        self.throttle_ms[key] = self.throttle_ms.get(key, 0) + throttle_ms


class UsageTable:
    """Usage by user and client-id; a bounded number, then one for all others, since clients choose their ids.

    One maker of many entries gets half of the table at most.
    """

    __slots__ = ("_shares", "_usages", "_usages_max", "_usages_per_maker_max", "other")

    def __init__(self, usages_max: int = USAGES_MAX, usages_per_maker_max: int = USAGES_PER_MAKER_MAX) -> None:
        self._usages: dict[tuple[str, str], Usage] = {}
        self._shares: dict[Hashable, UsageShare] = {}
        self._usages_per_maker_max = usages_per_maker_max
        self._usages_max = usages_max
        self.other = Usage(OTHER, OTHER)

    def get(self, user: str, client_id: str, maker: Hashable = None) -> Usage:
        """Return the usage of `user` with `client_id`, of whatever length: the same object at every call.

        Args:
            maker: in whose name it is made; None: the user's.
        """
        user, client_id = kept_name(user), kept_name(client_id)
        usage = self._usages.get((user, client_id))
        return usage if usage is not None else self._add(user, client_id, user if maker is None else maker)

    def __len__(self) -> int:
        return len(self._usages)

    def snapshot(self) -> list[Usage]:
        """Return all usages in one step, safe against a thread that adds; `other` is the last."""
        return [*self._usages.values(), self.other]

    def _add(self, user: str, client_id: str, maker: Hashable) -> Usage:
        taken = len(self._usages)
        share = self._shares.get(maker)
        has_many = share is not None and share.usages >= self._usages_per_maker_max
        if taken >= self._usages_max or (has_many and taken >= self._usages_max // 2):
            return self.other
        if share is None:
            share = self._shares[maker] = UsageShare()
        share.usages += 1
        usage = self._usages[user, client_id] = Usage(user, client_id, share)
        return usage
