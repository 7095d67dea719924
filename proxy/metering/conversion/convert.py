"""Converts a segment to Parquet files and their manifest. Runs as a child process, so that the proxy's interpreter never waits for it.

Every step can be repeated: files are written atomically, the manifest last, and the segment is removed after that.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import ASKED, MUTATION, NOTE, OF_BUCKETS, REFUSED, REMOTE, SKIPPED
from metering_format.manifest import RUN_KEYS, FileEntry, Manifest, TypeCount, manifest_text
from metering_format.places import KIND, MANIFESTS, PACED, SEGMENTS, SHARED, place_of, schema_of
from metering_format.tables import PACED_COLUMNS, SHARED_COLUMNS, TABLES
from proxy.base.clock import wall_time_s
from proxy.base.files import TEMPORARY, make_directory, put, put_bytes, remove
from proxy.meter.batch import Fact
from proxy.meter.buffer import AbandonedBuffer, read_abandoned
from proxy.metering.conversion.bounds import bounds_of
from proxy.metering.conversion.comparisons_table import comparisons_table
from proxy.metering.conversion.parts import Parts, pack_parts
from proxy.metering.conversion.remotes import Remotes
from proxy.metering.conversion.runs import RecordedDecisions, Runs, runs_of
from proxy.metering.conversion.samples import STATE, Sensors
from proxy.metering.conversion.trace import events_of
from proxy.metering.conversion.unended import end_runs
from proxy.metering.conversion.usage_table import usage_table, usage_totals
from proxy.metering.files import hashed, write_parquet
from proxy.metering.layout import FACTS_SUFFIX, RAW_SUFFIX, STATE_SUFFIX, pending_path, remove_temporaries
from proxy.metering.locks import converting
from proxy.metering.marks import put_mark
from proxy.metering.retention import DISK_FAILURE, Removed, apply_retention, retention_of
from proxy.metering.segment import Segment, read_segment

REQUEST: Final = "Request"
NICENESS: Final = 19


def convert(directory: Path, file_set: str, end: Fact | None = None, *, publish: bool = False) -> Path | None:
    """Convert the segment `file_set`; return the manifest's path, or None when the segment is empty.

    Args:
        end: how it ended; None: its process died before that was known.
        publish: mark the files for the topic, whether or not the proxy that wrote them was configured to send them.

    Raises:
        OSError: the disk is full or unavailable; the segment stays.
    """
    place = directory / SEGMENTS / file_set
    segment = read_segment(place)
    header = segment.header
    if header is None:
        _discard(place)
        return None
    runs, decisions, remotes = runs_of(segment.batches, header["wall_offset_ms"])
    runs, decisions = _explained(runs, decisions, segment)
    is_last = end is None and not _goes_on(directory, header, file_set)
    left = read_abandoned(pending_path(directory, header["run_id"])) if is_last else None
    if left is not None:
        segment = _with_losses(segment, header, left, runs)
    groups = list({group["group_ref"]: group for group in segment.facts_of("group")}.values())
    state = _state_before(directory, header)
    files, counts, after = _tables(segment, header, runs, decisions, remotes, groups, state)
    live_ms = max(((group["num_samples"] + 1) * group["window_ms"] for group in groups), default=0)
    hour_of_ms = _first_ts_ms(runs.only(runs.kind != REMOTE), header)
    written = [
        _write(directory, name, table, header, hour_of_ms, file_set, live_ms if name == "samples" else 0)
        for name, table in files.items()
        if len(table)
    ]
    dropped_usage_rows = 0 if left is None else left.usage_rows
    killed = {"final": False, "dropped_usage_rows": dropped_usage_rows, "truncated": is_last}
    manifest = _manifest(segment, header, runs, counts, written, end or killed)
    _put_state(directory, file_set, after)
    path = directory / place_of(MANIFESTS, header["proxy_id"], hour_of_ms, manifest.schema) / f"{file_set}.json"
    if publish or header.get("publish"):
        put_mark(directory, file_set, path)
    _put_manifest(path, manifest)
    _discard(place)
    if header["previous"] is not None:
        remove(directory / SEGMENTS / (header["previous"] + STATE_SUFFIX))
    if manifest.final or is_last:
        remove(directory / SEGMENTS / (file_set + STATE_SUFFIX), pending_path(directory, header["run_id"]))
    return path


def _explained(runs: Runs, decisions: RecordedDecisions, segment: Segment) -> tuple[Runs, RecordedDecisions]:
    """Leave out batches from the first one on that has an undescribed group, because the facts before it are missing.

    A killed process has written facts first. When the host crashes, the end of each file may be missing.
    """
    known = {group["group_ref"] for group in segment.facts_of("group")} & {bound["group_ref"] for bound in segment.facts_of("bound")}
    is_known = np.zeros(int(runs.group_ref.max(initial=0)) + 1, np.bool_)
    is_known[[ref for ref in known if ref < len(is_known)]] = True
    unknown = np.flatnonzero(~is_known[runs.group_ref])
    if not len(unknown):
        return runs, decisions
    first = runs.seq[unknown[0]]
    end_seq = max(batch.first_seq for batch in segment.batches if batch.first_seq <= first)
    return runs.only(runs.seq < end_seq), decisions.only(decisions.seq < end_seq)


def _discard(place: Path) -> None:
    remove(place.with_name(place.name + RAW_SUFFIX), place.with_name(place.name + FACTS_SUFFIX))


def _goes_on(directory: Path, header: Fact, file_set: str) -> bool:
    """Whether a later segment of the same run exists."""
    return any(path.name > file_set + FACTS_SUFFIX for path in (directory / SEGMENTS).glob(f"{header['run_id']}-*{FACTS_SUFFIX}"))


def _with_losses(segment: Segment, header: Fact, left: AbandonedBuffer, runs: Runs) -> Segment:
    """Count the decisions of a killed process that were not written, in its last segment, from its mapped buffer."""
    lasts = [_end_seq(runs)] if len(runs) else []
    lasts += [gap["from_seq"] + gap["n"] for gap in segment.facts_of("gap")]
    next_seq = max(lasts, default=header["first_seq"])
    if left.decisions <= next_seq:
        return segment
    gap = {"from_seq": next_seq, "n": left.decisions - next_seq, "reason": "crash"}
    return Segment(segment.batches, [*segment.facts, {"gap": gap}])


def _end_seq(runs: Runs) -> int:
    return int(runs.seq[-1] + runs.count[-1])


def _tables(
    segment: Segment, header: Fact, runs: Runs, decisions: RecordedDecisions, remotes: Remotes, groups: list[Fact], state: pa.Table
) -> tuple[dict[str, pa.Table], dict[str, TypeCount], pa.Table]:
    run = (header["run_id"], header["proxy_id"])
    noted, states, gaps = list(segment.facts_of("bound")), list(segment.facts_of("state")), list(segment.facts_of("gap"))
    bounds = bounds_of(noted)
    parts = Parts(
        np.array(sorted(fact["from_seq"] for fact in states), np.int64),
        np.array(sorted(gap["from_seq"] + gap["n"] for gap in gaps), np.int64),
        list(segment.facts_of("ring")),
    )
    lists = header["level"] != "sample"
    in_samples = runs.only((runs.kind < NOTE) | (runs.kind == REMOTE))
    known = remotes if SHARED in header["settings"] else None
    sensors = _sensors(groups, state)
    packed = pack_parts(in_samples, sensors, bounds, state, run, parts, lists=lists, remotes=known)
    tables = {
        "samples": packed.samples,
        "dim_group": _fact_table("dim_group", groups, run),
        "dim_bound": _fact_table("dim_bound", noted, run),
        "dim_client": _fact_table("dim_client", segment.facts_of("client"), run),
        "states": _fact_table("states", states, run),
        "gaps": _fact_table("gaps", gaps, run),
        "usage": usage_table(segment.facts_of("usage"), run),
        "comparisons": comparisons_table(segment.facts_of("compared"), run),
        "shares": _fact_table("shares", _shares_of(segment), run),
    }
    is_trace = header["level"] == "trace"
    mutations = decisions.only(np.isin(decisions.records["kind"], OF_BUCKETS))
    from_elsewhere = runs.kind >= REMOTE if is_trace else runs.kind == SKIPPED
    shown = (decisions if is_trace else mutations).with_runs(runs.take(from_elsewhere))
    steps = [step for steps in segment.facts_of("buckets") for step in steps]
    bounds_then = bounds.at(shown.records["group_ref"], shown.seq)
    tables["events"] = events_of(shown, bounds_then, packed.figures if is_trace else None, steps, run, remotes)
    return tables, {**_counts(packed.samples, groups), **_mutation_counts(mutations)}, packed.state


def _sensors(groups: list[dict[str, Any]], state: pa.Table) -> Sensors:
    known = state.column("group_ref").to_numpy()
    size = max([group["group_ref"] for group in groups] + [int(known.max()) if len(known) else -1, 0]) + 1
    num_samples, window_ms = np.full(size, 11), np.full(size, 1_000)
    is_request = np.zeros(size, np.bool_)
    for group in groups:
        num_samples[group["group_ref"]] = group["num_samples"]
        window_ms[group["group_ref"]] = group["window_ms"]
        is_request[group["group_ref"]] = group["quota_type"] == REQUEST
    return Sensors(num_samples, window_ms, is_request)


def _shares_of(segment: Segment) -> Iterator[Fact]:
    """Yield the rows of the shares of all seconds."""
    for second in segment.facts_of("shares"):
        yield from ({"second_ms": second["second_ms"], **row} for row in second["rows"])


def _fact_table(name: str, facts: Any, run: tuple[str, str]) -> pa.Table:
    schema = TABLES[name]
    ours = {"run_id": run[0], "proxy_id": run[1]}
    return pa.Table.from_pylist([{**fact, **ours} for fact in facts], schema=schema)


def _counts(samples: pa.Table, groups: list[dict[str, Any]]) -> dict[str, TypeCount]:
    types = {group["group_ref"]: group["quota_type"] for group in groups}
    counts: dict[str, TypeCount] = {}
    columns = {"decisions": "n", "units": "sum", "throttled": "throttled_n", "throttle_ms": "throttle_ms_sum"}
    elsewhere = {"decisions": "remote_n", "units": "remote_sum"}
    refs = samples.column("group_ref").to_numpy()
    for quota_type in sorted(set(types.values())):
        mine = np.isin(refs, [ref for ref, its in types.items() if its == quota_type])
        if mine.any():
            sums = {name: int(samples.column(column).to_numpy()[mine].sum()) for name, column in columns.items()}
            for name, column in elsewhere.items():
                sums[name] -= pc.sum(samples.column(column).filter(pa.array(mine))).as_py() or 0
            counts[quota_type] = TypeCount(**sums)
    return counts


def _mutation_counts(mutations: RecordedDecisions) -> dict[str, TypeCount]:
    """Return the same for token buckets: a refusal counts as a decision without usage."""
    if not len(mutations.seq):
        return {}
    kind, value, throttle_ms = (mutations.records[name] for name in ("kind", "value", "throttle_ms"))
    waits = throttle_ms[throttle_ms > 0]
    units = int(value[(kind != REFUSED) & (kind != ASKED)].sum())
    return {MUTATION: TypeCount(len(kind), units, len(waits), int(waits.sum()))}


def _write(directory: Path, name: str, table: pa.Table, header: Fact, first_ts_ms: int, file_set: str, live_ms: int) -> FileEntry:
    """Write one Parquet file: under a temporary name, with fsync and a check of its footer, then renamed."""
    for setting, columns in ((SHARED, SHARED_COLUMNS), (PACED, PACED_COLUMNS)):
        if setting not in header["settings"]:
            table = table.drop_columns(columns.get(name, ()))
    relative = place_of(name, header["proxy_id"], first_ts_ms, schema_of(header["settings"])) / f"{file_set}.parquet"
    path = directory / relative
    make_directory(path.parent)
    temporary = path.with_name(TEMPORARY + path.name)
    write_parquet(table, temporary, live_ms=live_ms)
    put(path, temporary)
    return FileEntry(name, str(relative), len(table), **hashed(path))


def _manifest(segment: Segment, header: Fact, runs: Runs, counts: dict[str, TypeCount], files: list[FileEntry], end: Fact) -> Manifest:
    gaps = list(segment.facts_of("gap"))
    lasts = [_end_seq(runs) - 1] if len(runs) else []
    lasts += [gap["from_seq"] + gap["n"] - 1 for gap in gaps]
    return Manifest(
        schema=schema_of(header["settings"]),
        kind=KIND,
        **{key: header[key] for key in (*RUN_KEYS, "previous")},
        first_seq=header["first_seq"],
        part=header["part"],
        last_seq=max(lasts, default=header["first_seq"] - 1),
        first_ts_ms=_first_ts_ms(runs, header),
        last_ts_ms=int(runs.ts_ms.max()) if len(runs) else header["opened_ts_ms"],
        truncated=end.get("truncated", False),
        final=end["final"],
        dropped_decisions=sum(gap["n"] for gap in gaps),
        dropped_usage_rows=end["dropped_usage_rows"],
        dropped_comparisons=sum(fact["lost"] for fact in segment.facts_of("compared")),
        files=tuple(files),
        counts=counts,
        usage=usage_totals(segment.facts_of("usage")),
    )


def _first_ts_ms(runs: Runs, header: dict[str, Any]) -> int:
    return int(runs.ts_ms.min()) if len(runs) else int(header["opened_ts_ms"])


def _state_before(directory: Path, header: dict[str, Any]) -> pa.Table:
    if header["previous"] is None:
        return STATE.empty_table()
    try:
        with pa.OSFile(str(directory / SEGMENTS / (header["previous"] + STATE_SUFFIX))) as file:
            return _completed(pa.ipc.open_file(file).read_all())
    except (OSError, pa.ArrowInvalid):
        return STATE.empty_table()  # its segment was lost, which the numbers of the next ones show


def _completed(state: pa.Table) -> pa.Table:
    """Add the column that a state of an earlier version lacks."""
    return (
        state if len(state.schema) == len(STATE) else state.append_column(STATE.field("virtual_ns"), pa.array([0] * len(state), pa.int64()))
    )


def _put_state(directory: Path, file_set: str, state: pa.Table) -> None:
    path = directory / SEGMENTS / (file_set + STATE_SUFFIX)
    temporary = path.with_name(TEMPORARY + path.name)
    with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, STATE) as writer:
        writer.write_table(state)
    put(path, temporary)


def _put_manifest(path: Path, manifest: Manifest) -> None:
    make_directory(path.parent)
    put_bytes(path, manifest_text(manifest))


def run(directory: Path, order: dict[str, Any], now_ms: int) -> tuple[int, Removed]:
    """Convert segments in order, end the runs that were killed without one, then apply retention.

    Args:
        order: `stems`, each with how it `end`ed, whose they are (`proxy_id`), and the limits of retention.

    Returns:
        0, or `DISK_FAILURE` when the segments stay; and what retention removed.
    """
    try:
        with converting(directory, order["proxy_id"]):
            for item in order["stems"]:
                convert(directory, item["stem"], item["end"], publish=order["publish"])
            for file_set in end_runs(directory, order["proxy_id"].__eq__):
                convert(directory, file_set, publish=order["publish"])
        removed = apply_retention(directory, order["proxy_id"], retention_of(order, now_ms))
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        remove_temporaries(directory, order["proxy_id"])
        return DISK_FAILURE, Removed()
    return 0, removed


class _WithoutPandas:
    """Arrow loads pandas when it is installed, which takes longer than a small segment. It is not needed here."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Raises:
        ModuleNotFoundError: pandas is requested.
        """
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main(arguments: Sequence[str]) -> int:
    """`python -m proxy.metering.conversion.convert DIR`; the order is JSON on stdin. Exit code 1: the disk failed."""
    sys.meta_path.insert(0, _WithoutPandas())
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    code, removed = run(Path(arguments[0]), msgspec.json.decode(sys.stdin.buffer.read()), int(wall_time_s() * 1_000))
    sys.stdout.write(msgspec.json.encode(removed).decode())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
