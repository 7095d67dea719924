"""Is a group's rate over minutes what its bound allows? A second look at enforcement, from outside of the arithmetic.

Kafka's own algorithm overshoots: every connection sends once more before it waits. With k seconds of quota in flight (connections x
requests in flight x mean size / bound) the steady state is `(1 + sqrt(1 + 4 k / 10.5)) / 2` times the bound, and k / C at least where
no wait is longer than C seconds. One percent is added, as simulations need, and one window of credit, which may be open when a look
begins. Nothing is said of single seconds: a full window's credit comes back when a large sample expires.

A token bucket does not forget what was taken too much, so in the long run its rate is its bound, however many connections it has: beyond
that come a full bucket at the start and, at the end, the requests that are in flight, or k / C where waits are cut short.

A proxy that paces its groups (one schedule for each, instead of a mute for each connection) is held to more: 1.02 times the bound and that
window of credit, whatever is in flight.

How many connections a group had comes from the usage rows. Where there are none, or their names do not fit, the group is not judged,
unless paced: what comes in during a wait would make any rate look right.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import EXCUSED_MS
from pipeline.file_set import FileSet
from pipeline.replay.buckets import Steps
from pipeline.replay.decisions import NO_CAP, Sensor
from pipeline.replay.findings import Finding, Kind
from pipeline.replay.rows import Flags, Ints, Rows
from pipeline.validation.rules.switched import ENFORCE, Switched
from pipeline.whatif.groups import plain_user
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND

SETTLED_MS: Final = 30_000
"""From the first activity of a group until its rate is looked at."""
SPAN_MS_MIN: Final = 60_000
STEADY_S: Final = 10.5
MARGIN: Final = 1.01
PACED_CEILING: Final = 1.02
IN_FLIGHT_MAX: Final = 5
"""Requests of one connection before its first wait: what Kafka's producers allow by default."""
MUTE_S_MAX: Final = 25.0
"""Nothing waits longer at a time: then one request goes on."""
EVERY: Final = "*"


class ThrottleWindow(msgspec.Struct, frozen=True):
    """What one file set says of one group that was throttled in it.

    Attributes:
        from_ms, to_ms: the first and the last event that is looked at.
        units: of all events between; percent-seconds for request time.
        checked: records among them.
        connections: the most that were open at once; 0: not known.
        credit: units that one window, or a full bucket, may hold.
        is_bucket: it is a token bucket's.
    """

    from_ms: int
    to_ms: int
    first_seq: int
    units: float
    checked: int
    bound: float
    cap_s: float
    connections: int
    credit: float
    is_bucket: bool = False

    @property
    def k(self) -> float:
        """Seconds of quota in flight."""
        return self.connections * IN_FLIGHT_MAX * (self.units / self.checked) / self.bound

    @property
    def ceiling(self) -> float:
        """The highest rate over the bound."""
        return max(1.0, self.k / self.cap_s) * MARGIN if self.is_bucket else ceiling(self.k, self.cap_s)

    @property
    def once(self) -> float:
        """Units that may come on top, once."""
        return self.credit + (self.k * self.bound if self.is_bucket else 0.0)


def ceiling(k: float, cap_s: float) -> float:
    """Return the highest long-run rate over the bound with `k` seconds of quota in flight and waits of at most `cap_s`."""
    return max((1.0 + math.sqrt(1.0 + 4.0 * k / STEADY_S)) / 2.0, k / cap_s) * MARGIN


class Circumstances:
    """What a file set says of its groups besides their decisions; read when it is first asked for, and once.

    Args:
        paced: of groups, too, without a count of connections.
    """

    def __init__(self, file_set: FileSet, *, paced: bool = False) -> None:
        self._file_set = file_set
        self._paced = paced

    @functools.cached_property
    def _connections(self) -> dict[tuple[str, str, str], int]:
        return _connections(self._file_set)

    @functools.cached_property
    def _is_enforced_throughout(self) -> bool:
        states = self._file_set.read("states", columns=["mode", "switches"]).to_pylist()
        return all(Switched(state["mode"], state["switches"]).modes == {ENFORCE} for state in states)

    @functools.cached_property
    def _groups(self) -> pa.Table:
        columns = ["group_ref", "node", "tag_user", "tag_client_id", "tags", "first_seen_ms", "scope"]
        return self._file_set.read("dim_group", columns=columns)

    @property
    def tell(self) -> bool:
        """Whether anything can be said of groups: connections were counted, or they do not matter, and everything was enforced."""
        return bool(self._connections or self._paced) and self._is_enforced_throughout

    def of(self, refs: Ints) -> dict[int, tuple[int, int]]:
        """Of each group: from when on its rate is looked at, and its connections; nothing where nothing can be said."""
        if not len(refs) or not self.tell:
            return {}
        wanted = pc.is_in(self._groups.column("group_ref"), value_set=pa.array(refs, pa.int32()))
        groups = {row["group_ref"]: row for row in self._groups.filter(wanted).to_pylist()}
        return {ref: (groups[ref]["first_seen_ms"] + SETTLED_MS, _of(self._connections, groups[ref])) for ref in refs.tolist()}


def throttle_windows(rows: Rows, sensor: Sensor, judged: Flags, circumstances: Circumstances) -> dict[int, ThrottleWindow]:
    """Return what rows of a file set say of each group that was throttled in them, by group number."""
    if not circumstances.tell:
        return {}
    throttled = rows.group_ref[np.flatnonzero(judged & (rows.declared["throttled_n"] > 0) & (rows.bound < UNLIMITED))]
    if not len(throttled):
        return {}
    excused = rows.group_ref[rows.row_of[np.flatnonzero(rows.applied_ms == EXCUSED_MS)]]
    made = {}
    for ref, (settled_ms, connections) in circumstances.of(_without(throttled, excused)).items():
        first, end = np.searchsorted(rows.group_ref, (ref, ref + 1))  # rows stand by group
        mine = first + np.flatnonzero(judged[first:end] & (rows.sample_start_ms[first:end] >= settled_ms))
        if len(mine):
            made[ref] = _throttle_window(rows, sensor, mine, connections)
    return made


def bucket_throttle_windows(steps: Steps, circumstances: Circumstances) -> dict[int, ThrottleWindow]:
    """The same of each token bucket that made a client wait."""
    throttled = steps.group_ref[(steps.throttle_ms > 0) & (steps.bound < UNLIMITED)]
    excused = steps.group_ref[steps.applied_ms == EXCUSED_MS]
    made = {}
    for ref, (settled_ms, connections) in circumstances.of(_without(throttled, excused)).items():
        first, end = np.searchsorted(steps.group_ref, (ref, ref + 1))
        mine = first + np.flatnonzero(steps.counts[first:end] & (steps.ts_ms[first:end] >= settled_ms))
        if len(mine) and steps.permits[mine].sum() > 0:
            made[ref] = _bucket_throttle_window(steps, mine, connections)
    return made


def _without(refs: Ints, excepted: Ints) -> Ints:
    """Return the numbers among `refs` that are not among `excepted`, each once, the lowest first; groups are numbered from 0 on."""
    counted = np.bincount(refs)
    counted[excepted[excepted < len(counted)]] = 0
    return np.flatnonzero(counted)


def _throttle_window(rows: Rows, sensor: Sensor, mine: Any, connections: int) -> ThrottleWindow:
    unit = PERCENT_PER_NANOSECOND if sensor.is_request_time else 1.0
    bound = float(rows.bound[mine].max())
    return ThrottleWindow(
        from_ms=int(rows.sample_start_ms[mine[0]]),
        to_ms=int(rows.last_event_ms[mine[-1]]),
        first_seq=int(rows.first_seq[mine[0]]),
        units=int(rows.total[mine].sum()) * unit,
        checked=int(rows.count[mine].sum()),
        bound=bound,
        cap_s=MUTE_S_MAX if sensor.cap_ms == NO_CAP else sensor.cap_ms / 1_000,
        connections=connections,
        credit=bound * sensor.num_samples * sensor.window_ms / 1_000,
    )


def _bucket_throttle_window(steps: Steps, mine: Ints, connections: int) -> ThrottleWindow:
    bound = float(steps.bound[mine].max())
    return ThrottleWindow(
        from_ms=int(steps.ts_ms[mine[0]]),
        to_ms=int(steps.ts_ms[mine[-1]]),
        first_seq=int(steps.seq[mine[0]]),
        units=float(steps.permits[mine].sum()),
        checked=int((steps.permits[mine] > 0).sum()),
        bound=bound,
        cap_s=MUTE_S_MAX,
        connections=connections,
        credit=bound * int(steps.num_samples[mine[0]]) * int(steps.window_ms[mine[0]]) / 1_000,
        is_bucket=True,
    )


def _connections(file_set: FileSet) -> dict[tuple[str, str, str], int]:
    """The most connections that were open, by (node, user, client-id); each of them may be `EVERY`."""
    usage = file_set.read("usage", columns=["client_ref", "node", "listener", "api_class", "connections_open"])
    if not len(usage):
        return {}
    cells = usage.group_by(["client_ref", "node", "listener", "api_class"]).aggregate([("connections_open", "max")])
    clients = {row["client_ref"]: row for row in file_set.read("dim_client", columns=["client_ref", "principal", "client_id"]).to_pylist()}
    found: dict[tuple[str, str, str], int] = {}
    for cell in cells.filter(pc.greater(cells.column("connections_open_max"), 0)).to_pylist():
        client = clients.get(cell["client_ref"])
        if client is None:
            continue
        for node in (cell["node"], EVERY):
            for user in (client["principal"], EVERY):
                for client_id in (client["client_id"], EVERY):
                    place = (node, user, client_id)
                    found[place] = found.get(place, 0) + cell["connections_open_max"]
    return found


def _of(connections: Mapping[tuple[str, str, str], int], group: Mapping[str, Any]) -> int:
    if group["tags"] or not (group["tag_user"] or group["tag_client_id"]):
        return 0  # a callback's own groups, addresses, listeners: usage does not tell who is in them
    node = str(group["node"]) if group["scope"] == "broker" and group["node"] is not None else EVERY
    user = plain_user(group["tag_user"]) if group["tag_user"] else EVERY
    return connections.get((node, user, group["tag_client_id"] or EVERY), 0)


class LongRun(msgspec.Struct, frozen=True):
    """What the file sets of a run say of one group together: rate over bound, and the highest that it may be."""

    seconds: float
    ratio: float
    k: float
    allowed: float


def judge(parts: Sequence[tuple[int, ThrottleWindow]], *, paced: bool = False) -> LongRun | None:
    """Return the long-run rate of one group; None: too short, or its connections are unknown and matter.

    Args:
        parts: (position of the file set in its run, run of rows), in order.
        paced: what is in flight does not matter.
    """
    allowed = units = bound_seconds = seconds = 0.0
    k_max = 0.0
    before = -2
    for position, part in parts:
        span_s = (part.to_ms - part.from_ms) / 1_000
        if not (part.connections or paced) or span_s <= 0:
            return None
        k_max = max(k_max, part.k)
        bound_seconds += part.bound * span_s
        ceiling, once = (PACED_CEILING, part.credit) if paced else (part.ceiling, part.once)
        allowed += part.bound * span_s * ceiling + (0.0 if position == before + 1 else once)
        units += part.units
        seconds += span_s
        before = position
    if seconds * 1_000 < SPAN_MS_MIN:
        return None
    return LongRun(seconds, units / bound_seconds, k_max, allowed / bound_seconds)


def fastest(throttle_windows: Mapping[int, ThrottleWindow]) -> list[int]:
    """Return the groups that were faster than their bounds, the fastest first: a run of which one is too fast has it here somewhere."""
    due = {ref: one.bound * max(one.to_ms - one.from_ms, 1) / 1_000 for ref, one in throttle_windows.items()}
    ratios = {ref: one.units / due[ref] if due[ref] else math.inf for ref, one in throttle_windows.items()}
    return sorted((ref for ref, ratio in ratios.items() if ratio > 1.0), key=lambda ref: -ratios[ref])


def judge_run(file_sets: Iterable[Mapping[int, ThrottleWindow]], *, paced: bool = False) -> tuple[dict[int, LongRun], list[Finding]]:
    """Return the long-run rates of a run's groups, and what is wrong with them."""
    parts: dict[int, list[tuple[int, ThrottleWindow]]] = {}
    for position, file_set in enumerate(file_sets):
        for ref, throttle_window in file_set.items():
            parts.setdefault(ref, []).append((position, throttle_window))
    found = {ref: long_run for ref, mine in parts.items() if (long_run := judge(mine, paced=paced)) is not None}
    wrong = [_finding(ref, parts[ref], found[ref], paced=paced) for ref in sorted(found) if found[ref].ratio > found[ref].allowed]
    return found, wrong


def _finding(ref: int, parts: Sequence[tuple[int, ThrottleWindow]], run: LongRun, *, paced: bool) -> Finding:
    first = parts[0][1]
    evidence = tuple(
        f"{part.from_ms} to {part.to_ms} ms: {part.units:.0f} units, bound {part.bound!r}, at most {part.connections} connections"
        for _, part in parts
    )
    said = f"{PACED_CEILING} and a window of credit, paced, whatever is in flight" if paced else f"with {run.k:.3g} s of quota in flight"
    what = f"rate over bound in {run.seconds:.0f} s, {said}"
    return Finding(Kind.RATE, ref, first.first_seq, first.from_ms, f"at most {run.allowed:.3f}", f"{run.ratio:.3f}", what, evidence)
