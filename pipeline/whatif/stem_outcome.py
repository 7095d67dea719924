"""One file set under other bounds, its groups as recorded: window and sum do not depend on the bound, so this is exact."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pipeline.replay.decisions import NO_CAP, decide
from pipeline.replay.decisions import Sensor as Measure
from pipeline.replay.rows import COLUMNS, Floats, Ints, Rows
from pipeline.stem import Stem
from pipeline.whatif.events import recorded_ms, unpacked
from pipeline.whatif.groups import Placed, Sensor
from pipeline.whatif.outcome import Outcome, Waits


def measure_of(sensor: Sensor) -> Measure:
    """Return how a sensor measures, as the replay wants it."""
    return Measure(
        sensor.num_samples, sensor.window_ms, NO_CAP if sensor.cap_ms is None else sensor.cap_ms, sensor.group.quota_type == "Request"
    )


def stem_outcomes(
    stem: Stem, before: Sequence[Stem], sensors: Mapping[int, Sensor], scenarios: Sequence[Mapping[int, Placed]]
) -> list[list[Outcome]]:
    """Return, for each scenario, what each placed sensor would have decided in this file set.

    Args:
        before: earlier file sets of the run; as many are read as the warm-up needs.
        scenarios: where sensors go, by their number; those that are not named are left out.
    """
    outcomes: list[list[Outcome]] = [[] for _ in scenarios]
    samples = stem.read("samples", columns=COLUMNS)
    wanted = sorted({ref for scenario in scenarios for ref in scenario} & set(sensors))
    if not len(samples) or not wanted:
        return outcomes
    table = pa.concat_tables([_warm_up(stem, before, [sensors[ref] for ref in wanted]), samples])
    kinds: dict[Measure, list[int]] = {}
    for ref in wanted:
        kinds.setdefault(measure_of(sensors[ref]), []).append(ref)
    for measure, refs in kinds.items():
        rows = unpacked(table, np.array(refs, np.int64), stem)
        if not rows.events:
            continue
        for scenario, out in zip(scenarios, outcomes, strict=True):
            out += _outcomes(rows, measure, stem.manifest.first_seq, scenario)
    return outcomes


def _outcomes(rows: Rows, measure: Measure, first_seq: int, scenario: Mapping[int, Placed]) -> list[Outcome]:
    throttle_ms = decide(replace(rows, bound=_bounds(rows, scenario)), measure).throttle_ms
    own = rows.first_seq >= first_seq
    recorded = recorded_ms(rows)
    ends = np.append(rows.event_at[1:], rows.events)
    refs, begins = np.unique(rows.group_ref, return_index=True)
    found = []
    for ref, begin, end in zip(refs.tolist(), begins.tolist(), [*begins[1:].tolist(), len(rows.n)], strict=True):
        if ref not in scenario or not own[end - 1]:
            continue
        begin += int(np.argmax(own[begin:end]))
        events = slice(int(rows.event_at[begin]), int(ends[end - 1]))
        placed = scenario[ref]
        found.append(
            Outcome(
                placed.group,
                placed.bound,
                float(rows.bound[end - 1]),
                events.stop - events.start,
                int(rows.total[begin:end].sum()),
                Waits.of(recorded[events]),
                Waits.of(throttle_ms[events]),
                is_certain=placed.is_certain,
            )
        )
    return found


def _bounds(rows: Rows, scenario: Mapping[int, Placed]) -> Floats:
    refs, at = np.unique(rows.group_ref, return_inverse=True)
    proposed: Ints = np.array([_proposed(scenario.get(ref)) for ref in refs.tolist()])
    bounds: Floats = np.where(np.isnan(proposed[at]), rows.bound, proposed[at])
    return bounds


def _proposed(placed: Placed | None) -> float:
    return float("nan") if placed is None or placed.bound is None else placed.bound


def _warm_up(stem: Stem, before: Sequence[Stem], sensors: Sequence[Sensor]) -> pa.Table:
    span_ms = max((sensor.num_samples + 1) * sensor.window_ms for sensor in sensors)
    after_ms = stem.manifest.first_ts_ms - span_ms
    parts = [stem.read("samples", columns=COLUMNS).slice(0, 0)]
    for earlier in reversed(before):
        if earlier.manifest.last_ts_ms <= after_ms:
            break
        parts.append(earlier.read("samples", columns=COLUMNS, after_ms=after_ms))
    return pa.concat_tables(reversed(parts))
