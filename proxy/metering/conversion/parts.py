"""Packs a segment with lost decisions part by part.

After a loss the samples in the files differ from those of the sensors. So the proxy records the state of each sensor before its next
decision, and packing continues from this state, with the boundaries and sums of the sensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from proxy.meter.batch import Fact
from proxy.metering.conversion.bounds import Bounds
from proxy.metering.conversion.packing import Figures, Packed, pack
from proxy.metering.conversion.remotes import Remotes
from proxy.metering.conversion.runs import Ints, Runs, joined
from proxy.metering.conversion.samples import STATE, Sensors


@dataclass(frozen=True, slots=True)
class Parts:
    """The numbers at which a segment's decisions are divided.

    Attributes:
        cuts: numbers at which settings changed.
        resumes: numbers of the first decisions after each loss.
        rings: states of sensors before their first decision after a loss, in order.
    """

    cuts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    resumes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    rings: list[Fact] = field(default_factory=list)


def pack_parts(
    runs: Runs,
    sensors: Sensors,
    bounds: Bounds,
    state: pa.Table,
    run: tuple[str, str],
    parts: Parts,
    *,
    lists: bool,
    remotes: Remotes | None = None,
) -> Packed:
    """Pack the decisions of one segment; see `pack`."""
    part_of = np.searchsorted(parts.resumes, runs.seq, side="right")
    packed: list[Packed] = []
    for part in np.unique(part_of).tolist():
        chosen = runs.only(part_of == part)
        state = _with_rings(state, _rings_before(chosen, [ring for ring in parts.rings if _holds(ring, part, parts.resumes)]))
        packed.append(pack(chosen, sensors, bounds, state, run, lists=lists, cuts=parts.cuts, remotes=remotes))
        state = packed[-1].state
    if not packed:
        return pack(runs, sensors, bounds, state, run, lists=lists)
    if len(packed) == 1:
        return packed[0]
    figures = [one.figures for one in packed if one.figures is not None]
    return Packed(pa.concat_tables([one.samples for one in packed]), state, _joined(figures) if figures else None)


def _holds(ring: Fact, part: int, resumes: Ints) -> bool:
    return int(np.searchsorted(resumes, ring["from_seq"], side="right")) == part


def _rings_before(runs: Runs, rings: list[Fact]) -> list[Fact]:
    """Return the states recorded before the first of these decisions of their group; packing computes the others."""
    if not rings:
        return []
    refs, firsts = np.unique(runs.group_ref, return_index=True)
    first_seq = dict(zip(refs.tolist(), runs.seq[firsts].tolist(), strict=True))
    return [ring for ring in rings if ring["from_seq"] <= first_seq.get(ring["group_ref"], -1)]


def _with_rings(state: pa.Table, rings: list[Fact]) -> pa.Table:
    """Replace the state by recorded states of sensors; their samples continue the numbers of the state."""
    if not rings:
        return state
    newest = {sample["group_ref"]: sample for sample in state.to_pylist()}  # sorted: the last one of each group stays
    latest = {ring["group_ref"]: ring for ring in rings}
    kept = state.filter(pa.array([ref not in latest for ref in state.column("group_ref").to_pylist()], pa.bool_()))
    rows = [row for ref, ring in latest.items() for row in _numbered(ref, ring["samples"], newest.get(ref))]
    joined = pa.concat_tables([kept, pa.Table.from_pylist(rows, schema=STATE)])
    return joined.sort_by([("group_ref", "ascending"), ("sample_index", "ascending")])


def _numbered(ref: int, samples: list[tuple[int, int, int]], newest: Fact | None) -> list[Fact]:
    first = 0 if newest is None else newest["sample_index"] + 1
    for at, (start_ms, _, _) in enumerate(samples):
        if newest is not None and start_ms == newest["start_ms"]:
            first = newest["sample_index"] - at
    virtual_ns = 0 if newest is None else newest["virtual_ns"]  # what was lost is not charged, so a lead is at most the sensor's
    return [
        {
            "group_ref": ref,
            "sample_index": first + at,
            "start_ms": start_ms,
            "last_ms": last_ms,
            "sum": total,
            "virtual_ns": virtual_ns,
        }
        for at, (start_ms, last_ms, total) in enumerate(samples)
    ]


def _joined(figures: list[Figures]) -> Figures:
    def of(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(one, name) for one in figures])

    return Figures(joined([one.runs for one in figures]), *(of(name) for name in Figures.__slots__ if name != "runs"))
