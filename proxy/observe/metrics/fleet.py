"""Families on the fleet; none without one."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from proxy.observe.fleet import FleetReport, heard
from proxy.observe.metrics.families import counter, counts, gauge, gauges


def fleet_families(report: FleetReport | None) -> Iterator[Metric]:
    """Return the families on the fleet, without names of members."""
    if report is None:
        return
    status = report.now()
    members = heard(status.members)
    yield gauge("kafka_sluice_fleet_members", "Members heard within 3 s, this one included.", max(1, len(members)))
    different = sum(not member.has_equal_quotas for member in members)
    yield gauge("kafka_sluice_fleet_members_with_other_quotas", "Those of them whose quotas are not those of this member.", different)
    yield _seconds("kafka_sluice_fleet_lag_seconds", "Average time of an own message through the bus and back.", status.lag_ms)
    yield _seconds("kafka_sluice_fleet_echo_age_seconds", "Time since the last own message came back.", status.echo_age_ms)
    yield gauge("kafka_sluice_fleet_cut_off", "1: no usage is exchanged with the other members.", int(status.is_cut_off))
    yield counter("kafka_sluice_fleet_cut_off_seconds_total", "Time in which none was exchanged.", status.cut_off_ms / 1_000)
    unused = {"forged": status.forged, "replayed": status.replayed, "unreadable": status.unreadable}
    yield counts("kafka_sluice_fleet_unused_messages_total", "Messages that were not used.", "reason", unused)
    text = "Messages in the topic of fleets with another name."
    yield counter("kafka_sluice_fleet_messages_of_other_fleets_total", text, status.of_other_fleets)
    yield counter("kafka_sluice_fleet_hub_starts_total", "Starts of the process that exchanges usage.", report.hub_starts)
    other = sum(not member.has_equal_limits for member in members)
    yield gauge("kafka_sluice_fleet_members_with_other_limits", "Members that do not share the same limits on connections.", other)
    if report.connections is not None:
        shared = report.connections
        yield gauge("kafka_sluice_fleet_connections_elsewhere", "Open connections with a limit at other members.", shared.open_elsewhere)
        text = "Connections that other members counted, and that were recorded in rates here."
        yield counter("kafka_sluice_fleet_connections_recorded_total", text, shared.recorded_elsewhere)


def _seconds(name: str, text: str, ms: float | None) -> Metric:
    """Return a gauge in seconds, without a series while there is no value."""
    return gauges(name, text, (), [] if ms is None else [((), ms / 1_000)])
