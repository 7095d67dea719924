"""Counters of the data path: plain integers that a scrape only reads.

No lock: one thread writes, others read a value that may be slightly old.
"""

from typing import Final

from proxy.telemetry.latency import ApiLatencies

API_KEYS_MAX: Final = 96
UNKNOWN_KEY: Final = API_KEYS_MAX - 1
"""Requests with a key that is not in the table of APIs are counted here; they pass only if configured."""

THROTTLE_BUCKETS_MS: Final = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000)
"""Upper edges of the throttle histogram; longer ones are in one more bucket."""


class ThrottleHistogram:
    """Histogram of the throttle times of one quota type."""

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
    """Counters of metering. Two threads write, each its own numbers."""

    __slots__ = (
        "conversion_failures",
        "decisions",
        "done_bytes",
        "dropped_decisions",
        "dropped_usage_rows",
        "file_sets_lost",
        "file_sets_published",
        "file_sets_removed",
        "file_sets_to_upload",
        "file_sets_uploaded",
        "handed_bytes",
        "last_error",
        "publish_failures",
        "segments",
        "upload_failures",
        "uploaded_bytes",
        "usage_rows",
        "write_errors",
    )

    def __init__(self) -> None:
        self.decisions = 0
        """Decisions written to segments."""
        self.usage_rows = 0
        self.dropped_decisions = 0
        """Decisions for which there was no space."""
        self.dropped_usage_rows = 0
        self.segments = 0
        self.write_errors = 0
        self.last_error = ""
        self.conversion_failures = 0
        """Failed attempts to convert segments."""
        self.file_sets_removed = 0
        """File sets removed by retention."""
        self.file_sets_published = 0
        self.publish_failures = 0
        self.file_sets_uploaded = 0
        self.uploaded_bytes = 0
        self.upload_failures = 0
        self.file_sets_to_upload = 0
        """File sets that the object store does not have, at the end of the last attempt."""
        self.file_sets_lost = 0
        """File sets that retention removed before they were uploaded."""
        self.handed_bytes = 0
        """Bytes handed from the event loop to the writer."""
        self.done_bytes = 0
        """The part of them that was written."""

    @property
    def waiting_bytes(self) -> int:
        """The approximate number of bytes that wait to be written."""
        return self.handed_bytes - self.done_bytes


class ShadowCounts:
    """Throttle times of brokers that enforce the same quotas, and Sluice's, by quota type; in ms."""

    __slots__ = ("broker_ms", "difference_ms", "sluice_ms", "verdicts")

    def __init__(self) -> None:
        self.broker_ms: dict[str, int] = {}
        self.sluice_ms: dict[str, int] = {}
        self.difference_ms: dict[str, int] = {}
        self.verdicts: dict[tuple[str, str], int] = {}
        """Throttled responses, by who throttled: "both", "broker" or "sluice"."""

    def compared(self, quota_type: str, broker_ms: int, sluice_ms: int) -> None:
        """Count the two throttle times of one response."""
        if broker_ms <= 0 >= sluice_ms:
            return
        self.broker_ms[quota_type] = self.broker_ms.get(quota_type, 0) + broker_ms
        self.sluice_ms[quota_type] = self.sluice_ms.get(quota_type, 0) + sluice_ms
        self.difference_ms[quota_type] = self.difference_ms.get(quota_type, 0) + abs(broker_ms - sluice_ms)
        by = "sluice" if broker_ms <= 0 else "broker" if sluice_ms <= 0 else "both"
        self.verdicts[quota_type, by] = self.verdicts.get((quota_type, by), 0) + 1


class AdministrationCounts:
    """Requests to read or change quotas by their results and origin: "kafka", "http"; "outside" in the store."""

    __slots__ = ("audit_failures", "authority_is_trusted", "changes", "denials")

    def __init__(self) -> None:
        self.changes: dict[str, int] = {}
        """Changed values and switches."""
        self.denials: dict[str, int] = {}
        """Denied requests."""
        self.audit_failures = 0
        """Failed writes to the audit log."""
        self.authority_is_trusted = True
        """False: the brokers did not refuse an account without rights, so their permission cannot be trusted."""


class Counters:
    """Counters of the whole process. Keys are Sluice's own strings (a listener, a reason), never a client's."""

    __slots__ = (
        "accepts_exhausted",
        "accepts_waited",
        "administration",
        "brokers_reached",
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
        "live_page_bytes",
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
        "shared_rows_refused",
        "throttles",
        "unmapped",
        "upstream_connect_failures",
        "upstream_connects",
    )

    def __init__(self) -> None:
        self.connections_accepted: dict[str, int] = {}
        """By listener name; refused connections included."""
        self.accepts_exhausted = 0
        """How often accepting paused because the process or the system had no free file descriptor."""
        self.accepts_waited = 0
        """How often a listener stopped accepting because of a rate, or without a free slot."""
        self.administration = AdministrationCounts()
        self.shadow = ShadowCounts()
        self.shared_rows_refused = 0
        """Requests of groups for a row in the memory of all workers when none was free; such a group counts alone in its worker."""
        self.certificate_expiries_s: dict[str, float] = {}
        """Wall-clock time at which each certificate in use expires, by its place."""
        self.certificates_rejected = 0
        """Changed certificate files that could not be loaded."""
        self.brokers_reached: dict[str, int] = {}
        """1: the last attempt to connect to this broker succeeded, 0: it failed; by node id, or by address while that is unknown."""
        self.buffered_bytes = 0
        """Bytes held by all connections at the last check; once a second."""
        self.buffer_bytes_max = 0
        self.live_page_bytes = 0
        """Bytes that the live page keeps for its history and its viewers."""
        self.memory_pauses = 0
        self.memory_pressure = 0
        """0: none, 1: the sides with the largest backlogs are paused, 2: no new connection is accepted either."""
        self.metering = MeteringCounts()
        self.connections_open = 0
        self.discarded_request_bytes = 0
        """Bytes of whole requests that were not forwarded when the connection of a client that had closed its side ended."""
        self.closes: dict[str, int] = {}
        """By close reason."""
        self.logins: dict[tuple[str, str], int] = {}
        """Finished exchanges, by mechanism and outcome: "success", "unknown" (accepted, user not known), "failure"."""
        self.plain_exposed = 0
        """Logins by PLAIN across a network without TLS."""
        self.principal_builder_faults = 0
        self.proxy_headers: dict[str, int] = {}
        """PROXY headers by kind: "address", "unknown" or "local"."""
        self.proxy_headers_waiting = 0
        """Connections of load balancers whose header has not arrived."""
        self.requests = 0
        self.responses = 0
        self.bytes_from_clients = 0
        self.bytes_from_brokers = 0
        """These four count connections that have ended; open ones have their own counters."""
        self.upstream_connects = 0
        self.upstream_connect_failures = 0
        self.unmapped = 0
        """Addresses in responses without a listener, or of brokers whose port could not be bound."""
        self.config_reloads_succeeded = 0
        self.config_reloads_rejected = 0
        self.internal_errors = 0
        """Unexpected exceptions, most of which ended a connection: each is a bug."""
        self.gc_ns = 0
        """Time of the garbage collector, during which no other code ran."""
        self.gc_long = 0
        """Collections of 20 ms and more."""
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
    """Increase `counts[key]`, which may be new."""
    counts[key] = counts.get(key, 0) + by
