"""Arrow schemas of every metering table. Files of version 2 have `SHARED_COLUMNS`, those of version 3
`PACED_COLUMNS`, those of version 1 neither.

Suffixes are units: `_ms` milliseconds, `_ns` nanoseconds, `_bytes` bytes. `seq` numbers the decisions of a run, without gaps.
"""

from typing import Final

import pyarrow as pa

_RUN = pa.field("run_id", pa.string(), nullable=False)
_PROXY = pa.field("proxy_id", pa.string(), nullable=False)


def _field(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


DIM_GROUP: Final = pa.schema(
    [
        _RUN,
        _PROXY,
        _field("group_ref", pa.int32()),
        _field("quota_type", pa.string()),  # Produce, Fetch, Request, Connection, ControllerMutation
        _field("scope", pa.string()),  # broker, cluster, process, listener, ip
        _field("node_id", pa.int32(), nullable=True),
        _field("node", pa.string(), nullable=True),  # the label of a broker whose id is not known
        _field("listener", pa.string(), nullable=True),
        _field("tag_user", pa.string(), nullable=True),
        _field("tag_client_id", pa.string(), nullable=True),
        _field("tag_ip", pa.string(), nullable=True),
        _field("tags", pa.string(), nullable=True),  # JSON of the tags that a custom callback returned
        _field("num_samples", pa.int32()),
        _field("window_ms", pa.int32()),
        _field("cap_ms", pa.int32(), nullable=True),
        _field("first_seen_ms", pa.int64()),
    ]
)
"""Which clients share a sensor. Its identity is (run_id, proxy_id, group_ref); a number is never given twice in a run."""

DIM_BOUND: Final = pa.schema(
    [
        _RUN,
        _field("group_ref", pa.int32()),
        _field("from_seq", pa.int64()),
        _field("bound", pa.float64()),
        _field("previous", pa.float64(), nullable=True),
        _field("rule", pa.string()),
        _field("source", pa.string()),
        _field("who", pa.string(), nullable=True),
        _field("generation", pa.int64()),
    ]
)
"""The bound of a group from a sequence number on."""

DIM_CLIENT: Final = pa.schema(
    [
        _RUN,
        _field("client_ref", pa.int32()),
        _field("principal_type", pa.string()),
        _field("principal", pa.string()),
        _field("client_id", pa.string()),
        _field("name_form", pa.string()),  # plain, keyed, none
    ]
)
"""Who the usage rows speak of: strings stand here only, so that they can be forgotten without touching facts."""

STATES: Final = pa.schema(
    [
        _RUN,
        _PROXY,
        _field("from_seq", pa.int64()),
        _field("ts_ms", pa.int64()),
        _field("mode", pa.string()),  # delay, mute, observe
        _field("scope", pa.string()),
        _field("delay_max_ms", pa.int32()),
        _field("num_samples", pa.int32()),
        _field("window_ms", pa.int32()),
        _field("produce_enabled", pa.bool_()),
        _field("fetch_enabled", pa.bool_()),
        _field("request_enabled", pa.bool_()),
        _field("level", pa.string()),  # sample, packed, trace
        _field("switches", pa.string(), nullable=True),  # JSON: mode by target, empty without switches
        _field("fleet", pa.string(), nullable=True),  # JSON: clock of the bus and other members; empty without a fleet
        _field("pacing", pa.string(), nullable=True),  # JSON: window or paced by target; empty when nothing was ever paced
    ]
)
"""How the proxy was set from a sequence number on."""

SHARES: Final = pa.schema(
    [
        _RUN,
        _PROXY,
        _field("group_ref", pa.int32()),
        _field("member_ref", pa.int32()),  # number of the member in the run
        _field("client_ref", pa.int32(), nullable=True),  # a client that is the member; null: it passed nothing yet
        _field("second_ms", pa.int64()),
        _field("passed_bytes", pa.int64()),
        _field("largest_bytes", pa.int64()),
        _field("wanted_ms", pa.int64()),  # how long a request waited, since the row before
    ]
)
"""What one member of a paced group passed in one second, while several members had a claim."""

SHARED_COLUMNS: Final = {
    "samples": ("remote_n", "remote_sum", "remote_pos", "remote_source", "remote_total"),
    "events": ("source", "source_total", "assumed"),
}
"""Columns that only runs of processes that share usage have."""
PACED_COLUMNS: Final = {"samples": ("lead_ns",), "shares": tuple(SHARES.names)}
"""Columns that only runs with paced groups have, and a table."""
ADDED: Final = {
    "states": ("switches", "fleet", "pacing"),
    "samples": (*SHARED_COLUMNS["samples"], *PACED_COLUMNS["samples"]),
    "events": ("before", "since_ms", *SHARED_COLUMNS["events"]),
    "usage": ("waited_requests", "waited_ms"),
}
"""Columns that files of an earlier version lack."""

GAPS: Final = pa.schema([_RUN, _field("from_seq", pa.int64()), _field("n", pa.int64()), _field("reason", pa.string())])
"""Decisions that were taken and not written: their numbers, and why."""

SAMPLES: Final = pa.schema(
    [
        _RUN,
        _PROXY,
        _field("group_ref", pa.int32()),
        _field("sample_index", pa.int32()),  # ordinal in its sensor; the ring slot is this mod (N + 1)
        _field("sample_start_ms", pa.int64()),
        _field("last_event_ms", pa.int64()),
        _field("n", pa.int32()),
        _field("sum", pa.int64()),
        _field("prior_sum", pa.int64()),  # live before the row's first event
        _field("window_ms", pa.int32()),  # at the row's first event
        _field("oldest_start_ms", pa.int64()),  # at the row's first event
        _field("bound", pa.float64()),
        _field("first_seq", pa.int64()),
        _field("last_seq", pa.int64()),
        _field("max_observed", pa.float64()),
        _field("throttled_n", pa.int32()),
        _field("violated_n", pa.int32()),
        _field("throttle_ms_sum", pa.int64()),
        _field("throttle_ms_max", pa.int32()),
        _field("applied_ms_sum", pa.int64()),
        _field("dt_ms", _list(pa.int32()), nullable=True),
        _field("val", _list(pa.int64()), nullable=True),
        _field("unchecked_pos", _list(pa.int32()), nullable=True),
        _field("thr_pos", _list(pa.int32()), nullable=True),
        _field("thr_ms", _list(pa.int32()), nullable=True),
        _field("applied_ms", _list(pa.int32()), nullable=True),
        _field("remote_n", pa.int32(), nullable=True),  # the part of `n` and `sum` that other processes recorded
        _field("remote_sum", pa.int64(), nullable=True),
        _field("remote_pos", _list(pa.int32()), nullable=True),
        _field("remote_source", _list(pa.string()), nullable=True),  # number of a worker
        _field("remote_total", _list(pa.int64()), nullable=True),  # the source's total for the group by then
        _field("lead_ns", pa.int64(), nullable=True),  # of a paced group: how far its schedule was ahead before the row's first event
    ]
)
"""One closed sample of one sensor, or a part of one; the lists, one entry per event, are null at level `sample`."""

EVENTS: Final = pa.schema(
    [
        _RUN,
        _PROXY,
        _field("group_ref", pa.int32()),
        _field("seq", pa.int64()),
        _field("ts_ms", pa.int64()),
        _field("sample_start_ms", pa.int64()),
        _field("kind", pa.int8()),  # 0 record, 1 unchecked, 2 un-record, 3 note; of mutations: 4 charged to 8 asked; 9 remote, 10 skipped
        _field("value", pa.int64()),
        _field("window_sum", pa.int64()),
        _field("window_ms", pa.int32()),
        _field("observed", pa.float64()),
        _field("bound", pa.float64()),
        _field("throttle_ms", pa.int32()),
        _field("applied_ms", pa.int32()),
        _field("conn_id", pa.int32()),
        _field("api_key", pa.int16()),
        _field("api_version", pa.int16()),
        _field("before", pa.float64(), nullable=True),
        _field("since_ms", pa.int64(), nullable=True),
        _field("source", pa.string(), nullable=True),
        _field("source_total", pa.int64(), nullable=True),
        _field("assumed", pa.float64(), nullable=True),  # 0: usage of workers of one host is known, not estimated
    ]
)
"""One decision: at level `trace` all of them, at the others what a token bucket decided about controller mutations, which have no samples,
and usage from elsewhere that was skipped.

Of a mutation `value` is what it costs, `before` the balance that it found, as of `since_ms`, and `observed` the one that it left.
"""

USAGE: Final = pa.schema(
    [
        _RUN,
        _PROXY,
        _field("client_ref", pa.int32()),
        _field("node_id", pa.int32(), nullable=True),
        _field("node", pa.string()),
        _field("listener", pa.string()),
        _field("api_class", pa.string()),  # produce, fetch, metadata, group, transaction, admin, other
        _field("second_ms", pa.int64()),
        _field("requests", pa.int64()),
        _field("request_bytes", pa.int64()),
        _field("response_bytes", pa.int64()),
        _field("produce_bytes", pa.int64()),
        _field("fetch_bytes", pa.int64()),
        _field("handler_ns", pa.int64()),
        _field("throttled_requests", pa.int64()),
        _field("throttle_ms", pa.int64()),
        _field("waited_requests", pa.int64(), nullable=True),  # of the throttled ones, those that were neither only observed nor excused
        _field("waited_ms", pa.int64(), nullable=True),
        _field("connections_opened", pa.int32()),
        _field("connections_open", pa.int32()),
    ]
)
"""What one client did in one second, whatever quota it has."""

COMPARISONS: Final = pa.schema(
    [
        _RUN,
        _PROXY,
        _field("ts_ms", pa.int64()),
        _field("quota_type", pa.string()),  # Produce, Fetch: the API of the response
        _field("group_ref", pa.int32(), nullable=True),  # the group that Sluice throttled; null: no quota is known to Sluice
        _field("client_ref", pa.int32(), nullable=True),
        _field("broker_ms", pa.int32()),
        _field("sluice_ms", pa.int32()),
    ]
)
"""One answer of a broker that keeps the quotas, which it or Sluice throttled."""

TABLES: Final = {
    "samples": SAMPLES,
    "events": EVENTS,
    "usage": USAGE,
    "comparisons": COMPARISONS,
    "shares": SHARES,
    "dim_group": DIM_GROUP,
    "dim_bound": DIM_BOUND,
    "dim_client": DIM_CLIENT,
    "states": STATES,
    "gaps": GAPS,
}
"""Every table of the metering directory by its name."""
