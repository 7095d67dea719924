"""Families on the process as a whole: a few series each, without names of clients."""

from collections.abc import Iterator, Sequence

from prometheus_client import GCCollector, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry

from proxy.observe.metrics.api_names import API_NAMES
from proxy.observe.metrics.families import counter, counters, counts, gauge, gauges, latency_histogram, throttle_histogram
from proxy.observe.snapshot import Snapshot, WorkerFigures
from proxy.telemetry.client_usage import OTHER
from proxy.telemetry.counters import AdministrationCounts, Counters, MeteringCounts, ShadowCounts
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.status import AdmissionStatus, Traffic

_BARE = CollectorRegistry()  # collectors register themselves; this registry is not read
_PROCESS = ProcessCollector(registry=_BARE)
_GC = GCCollector(registry=_BARE)


def process_families(snapshot: Snapshot, lag: LoopLag, version: str, *, with_names: bool = True) -> Iterator[Metric]:
    """Return all families whose size does not depend on the number of clients; `with_names`: addresses of clients, too."""
    yield gauges("kafka_sluice_build_info", "The version that runs.", ("version",), [((version,), 1)])
    yield gauges(
        "kafka_sluice_enforcement_info",
        "Mode of enforcement and scope of quotas.",
        ("mode", "scope"),
        [((snapshot.mode, snapshot.scope), 1)],
    )
    yield gauges(
        "kafka_sluice_ready",
        "1 when this check for taking traffic holds.",
        ("check",),
        [((check.name,), int(check.ok)) for check in snapshot.readiness],
    )
    yield from _connection_families(snapshot.counters)
    yield from _admission_families(snapshot.admission, snapshot.counters, with_names=with_names)
    yield from _login_families(snapshot.counters)
    yield from _memory_families(snapshot.counters)
    yield from _traffic_families(snapshot.traffic)
    yield latency_histogram(
        "kafka_sluice_request_latency_seconds",
        "From when a request was forwarded until its response began.",
        _latencies(snapshot.counters),
    )
    yield from _metering_families(snapshot.counters.metering)
    yield from _loop_families(lag, snapshot)
    yield from _worker_families(snapshot.workers)
    text = "Requests of groups for shared memory that found none free. Such a group has its quota once in each worker."
    yield counter("kafka_sluice_shared_rows_refused_total", text, snapshot.counters.shared_rows_refused)
    yield counter("kafka_sluice_gc_seconds_total", "Time of the garbage collector.", snapshot.counters.gc_ns / 1e9)
    yield counter("kafka_sluice_gc_long_pauses_total", "Runs of the garbage collector of 20 ms or longer.", snapshot.counters.gc_long)
    yield from _source_families(snapshot)
    yield from _administration_families(snapshot.counters.administration)
    yield from _shadow_families(snapshot.counters.shadow)
    yield throttle_histogram("kafka_quota_throttle_duration_seconds", "Throttle times.", snapshot.counters.throttles)
    yield from _PROCESS.collect()
    yield from _GC.collect()


def _connection_families(counted: Counters) -> Iterator[Metric]:
    yield counts("kafka_quota_connections_accepted_total", "Connections accepted.", "listener", counted.connections_accepted)
    yield counter("kafka_sluice_accepts_exhausted_total", "How often accepting stopped for lack of open files.", counted.accepts_exhausted)
    yield gauge("kafka_sluice_connections_open", "Client connections now open.", counted.connections_open)
    yield counts("kafka_sluice_closes_total", "Connections ended, each with its one reason.", "reason", counted.closes)
    help_text = "Bytes of requests dropped with the connection of a client that had closed its side."
    yield counter("kafka_sluice_discarded_request_bytes_total", help_text, counted.discarded_request_bytes)
    yield counter("kafka_sluice_upstream_connects_total", "Connections made to brokers.", counted.upstream_connects)
    yield counts("kafka_sluice_proxy_headers_total", "PROXY headers of load balancers, by outcome.", "outcome", counted.proxy_headers)
    yield gauge("kafka_sluice_proxy_headers_waiting", "Connections whose PROXY header has not arrived.", counted.proxy_headers_waiting)
    yield counter(
        "kafka_sluice_upstream_connect_failures_total", "Attempts to reach a broker that failed.", counted.upstream_connect_failures
    )
    expiries = [((place,), expires_at_s) for place, expires_at_s in counted.certificate_expiries_s.items()]
    yield gauges("kafka_sluice_certificate_expiry_timestamp_seconds", "When the certificate in use expires.", ("place",), expiries)
    yield counter("kafka_sluice_certificates_rejected_total", "Changed certificates that could not be used.", counted.certificates_rejected)
    yield counter("kafka_sluice_unmapped_endpoints_total", "Broker addresses in responses without a listener.", counted.unmapped)
    yield counter("kafka_sluice_internal_errors_total", "Errors of Sluice itself, most of which end a connection.", counted.internal_errors)


def _metering_families(metering: MeteringCounts) -> Iterator[Metric]:
    yield counter("kafka_sluice_metering_decisions_total", "Decisions written to metering segments.", metering.decisions)
    yield counter("kafka_sluice_metering_usage_rows_total", "Rows of usage written to metering segments.", metering.usage_rows)
    yield counter(
        "kafka_sluice_metering_dropped_decisions_total", "Decisions that were not written, for lack of room.", metering.dropped_decisions
    )
    yield counter("kafka_sluice_metering_write_errors_total", "Writes of metering that the disk refused.", metering.write_errors)
    yield counter(
        "kafka_sluice_metering_conversion_failures_total", "Attempts to turn segments into files that failed.", metering.conversion_failures
    )
    yield counter("kafka_sluice_metering_file_sets_removed_total", "File sets that retention removed.", metering.file_sets_removed)
    yield counter("kafka_sluice_metering_file_sets_published_total", "File sets sent to the topic.", metering.file_sets_published)
    yield counter("kafka_sluice_metering_publish_failures_total", "Attempts to send to the topic that failed.", metering.publish_failures)
    yield counter("kafka_sluice_metering_file_sets_uploaded_total", "File sets copied to the object store.", metering.file_sets_uploaded)
    yield counter("kafka_sluice_metering_uploaded_bytes_total", "Bytes of these file sets.", metering.uploaded_bytes)
    yield counter("kafka_sluice_metering_upload_failures_total", "Attempts to upload that failed.", metering.upload_failures)
    yield gauge("kafka_sluice_metering_file_sets_to_upload", "File sets that wait for their upload.", metering.file_sets_to_upload)
    yield counter(
        "kafka_sluice_metering_file_sets_lost_total", "File sets that retention removed before their upload.", metering.file_sets_lost
    )
    yield gauge("kafka_sluice_metering_waiting_bytes", "Estimated bytes that wait to be written.", metering.waiting_bytes)


def _admission_families(admission: AdmissionStatus, counted: Counters, *, with_names: bool) -> Iterator[Metric]:
    label, listeners = ("listener",), admission.listeners
    yield gauges(
        "kafka_connection_accept_rate", "Connections per second.", label, [((one.listener,), one.accept_rate) for one in listeners]
    )
    yield gauge("kafka_connection_broker_accept_rate", "The same of the process.", admission.broker_accept_rate)
    throttles = [((one.listener,), one.throttle_ms / 1_000) for one in listeners]
    yield gauges("kafka_connection_accept_throttle_seconds", "Mean wait of connections that exceeded a rate.", label, throttles)
    ip_throttles = [((one.listener,), one.ip_throttle_ms / 1_000) for one in listeners]
    yield gauges(
        "kafka_connection_ip_accept_throttle_seconds",
        "Mean delay of connections that were held because of their address.",
        label,
        ip_throttles,
    )
    blocked = [((one.listener,), one.blocked_ratio) for one in listeners]
    yield gauges("kafka_connection_acceptor_blocked_ratio", "Share of time in which no connection was accepted.", label, blocked)
    rates = [((one.ip, one.broker), one.rate) for one in admission.ip_series] if with_names else []
    yield gauges("kafka_connection_ip_accept_rate", "Connections per second of the busiest addresses.", ("ip", "broker"), rates)
    yield counter(
        "kafka_sluice_accepts_waited_total",
        "How often accepting stopped because of a rate or a limit of connections.",
        counted.accepts_waited,
    )
    yield gauge("kafka_sluice_connections_held", "Sockets that are held unread because their address exceeded its rate.", admission.held)
    yield gauge("kafka_sluice_tracked_ips", "Addresses with a rate of their own.", admission.tracked_ips)
    yield gauge("kafka_sluice_failing_ips", "Addresses whose logins failed within a minute, where that is limited.", admission.failing_ips)
    yield counter(
        "kafka_sluice_forgotten_ips_total", "Addresses whose rate was dropped because there were too many.", admission.forgotten_ips
    )


def _login_families(counted: Counters) -> Iterator[Metric]:
    yield counters(
        "kafka_sluice_sasl_exchanges_total",
        "Logins by outcome; unknown: accepted, and the user is not known.",
        ("mechanism", "outcome"),
        sorted(counted.logins.items()),
    )
    yield counter("kafka_sluice_plain_without_tls_total", "Logins by PLAIN that crossed a network in the clear.", counted.plain_exposed)
    yield counter("kafka_sluice_principal_builder_faults_total", "Failures of a principal builder.", counted.principal_builder_faults)


def _memory_families(counted: Counters) -> Iterator[Metric]:
    yield gauge("kafka_sluice_buffered_bytes", "Bytes in the buffers of all connections, measured once a second.", counted.buffered_bytes)
    yield gauge("kafka_sluice_buffer_limit_bytes", "The limit of these buffers.", counted.buffer_bytes_max)
    yield gauge("kafka_sluice_live_page_bytes", "Bytes of the live page: its history and its viewers.", counted.live_page_bytes)
    yield gauge(
        "kafka_sluice_memory_pressure",
        "1: the largest backlogs are not read; 2: no connection is accepted either.",
        counted.memory_pressure,
    )
    yield counter("kafka_sluice_memory_pauses_total", "Sides of connections that were paused for memory.", counted.memory_pauses)


def _traffic_families(traffic: Traffic) -> Iterator[Metric]:
    yield counter("kafka_sluice_requests_total", "Requests read from clients.", traffic.requests)
    yield counter("kafka_sluice_responses_total", "Responses of brokers.", traffic.responses)
    received = [(("client",), traffic.bytes_from_clients), (("broker",), traffic.bytes_from_brokers)]
    yield counters("kafka_sluice_received_bytes_total", "Bytes read from sockets.", ("side",), received)


def _latencies(counted: Counters) -> dict[str, list[int]]:
    rows = {API_NAMES[key]: row for key, row in counted.latencies.rows.items()}
    other = counted.latencies.other
    return rows | ({OTHER: other} if any(other) else {})


def _shadow_families(counted: ShadowCounts) -> Iterator[Metric]:
    sums = (("broker", counted.broker_ms), ("sluice", counted.sluice_ms))
    sides = [((kind, side), ms / 1_000) for side, of_kind in sums for kind, ms in list(of_kind.items())]
    labels = ("quota_type", "by")
    yield counters(
        "kafka_sluice_shadow_throttle_seconds_total", "Throttle times of brokers that keep the quotas, and of Sluice.", labels, sides
    )
    apart = [((kind,), ms / 1_000) for kind, ms in list(counted.difference_ms.items())]
    yield counters(
        "kafka_sluice_shadow_difference_seconds_total", "Sum of the differences between the two, response by response.", labels[:1], apart
    )
    answers = list(counted.verdicts.items())
    yield counters("kafka_sluice_shadow_answers_total", "Responses that one of them, or both, throttled.", labels, answers)


def _administration_families(counted: AdministrationCounts) -> Iterator[Metric]:
    yield counts("kafka_sluice_quota_changes_total", "Values and switches that were changed.", "way", counted.changes)
    yield counts("kafka_sluice_quota_denials_total", "Requests about quotas without permission.", "way", counted.denials)
    yield counter("kafka_sluice_audit_failures_total", "Lines that the audit log did not accept.", counted.audit_failures)
    trusted = int(counted.authority_is_trusted)
    yield gauge(
        "kafka_sluice_quota_authority_trusted", "0: brokers decide who may change quotas, and no test has shown that they refuse.", trusted
    )


def _loop_families(lag: LoopLag, snapshot: Snapshot) -> Iterator[Metric]:
    processes = [one.process for one in snapshot.workers if one.process is not None]
    last_ms = max([lag.last_ms, *(one.lag_last_ms for one in processes)])
    max_ms = max([lag.max_ms(), *(one.lag_max_ms for one in processes)])
    yield gauge("kafka_sluice_loop_lag_seconds", "Lag of the event loop at its last measurement.", last_ms / 1_000)
    yield gauge("kafka_sluice_loop_lag_max_seconds", "The longest lag of the last one to two minutes.", max_ms / 1_000)
    stalls = lag.stalls + snapshot.worker_stalls
    yield counter("kafka_sluice_loop_stalls_total", "Lags long enough to have their stack logged.", stalls)


def _worker_families(workers: Sequence[WorkerFigures]) -> Iterator[Metric]:
    """Return the families that differ between workers; none for a single process."""
    if not workers:
        return
    label = ("worker",)
    stale = [((str(one.number),), int(one.is_stale)) for one in workers]
    yield gauges("kafka_sluice_worker_stale", "1: the worker did not answer, its last values are shown.", label, stale)
    known = [((str(one.number),), one.process, one.connections_open) for one in workers if one.process is not None]
    cpu = [(number, process.cpu_s) for number, process, _ in known]
    yield counters("kafka_sluice_worker_cpu_seconds_total", "Processor time, user and system.", label, cpu)
    resident = [(number, process.resident_bytes) for number, process, _ in known]
    yield gauges("kafka_sluice_worker_resident_memory_bytes", "Memory of the process.", label, resident)
    lags = [(number, process.lag_last_ms / 1_000) for number, process, _ in known]
    yield gauges("kafka_sluice_worker_loop_lag_seconds", "Lag of the event loop at its last measurement.", label, lags)
    longest = [(number, process.lag_max_ms / 1_000) for number, process, _ in known]
    yield gauges("kafka_sluice_worker_loop_lag_max_seconds", "The longest lag of the last one to two minutes.", label, longest)
    connections = [(number, count) for number, _, count in known]
    yield gauges("kafka_sluice_worker_connections_open", "Client connections now open.", label, connections)


def _source_families(snapshot: Snapshot) -> Iterator[Metric]:
    source, counted = snapshot.source, snapshot.counters
    name = (source.source,)
    yield gauges("kafka_quota_config_info", "Where quotas come from.", ("source",), [(name, 1)])
    yield gauges(
        "kafka_quota_config_last_success_timestamp_seconds",
        "When the quotas were last read and valid.",
        ("source",),
        [(name, source.last_success_s)],
    )
    yield gauges("kafka_quota_config_entries", "Entities that have a quota.", ("source",), [(name, source.entries)])
    yield gauges(
        "kafka_quota_config_error",
        "1 while the last good quotas are kept because of an error.",
        ("source",),
        [(name, int(source.error is not None))],
    )
    age_s = max(0, snapshot.now_ms - source.last_success_ms) / 1_000
    yield gauges("kafka_quota_config_age_seconds", "Age of the last valid read of the quotas.", ("source",), [(name, age_s)])
    states = {(*name, "rejected"): source.rejected, (*name, "replaced"): source.replaced}
    yield gauges("kafka_quota_config_values", "Stored values that are not enforced.", ("source", "state"), states.items())
    reloads = {("success",): counted.config_reloads_succeeded, ("rejected",): counted.config_reloads_rejected}
    yield counters("kafka_sluice_config_reloads_total", "Reloads of the configuration.", ("outcome",), reloads.items())
