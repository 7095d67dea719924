"""Duplicate decision numbers and decreasing times are found, with and without sorting."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.replay.findings import Findings, Kind
from pipeline.replay.rows import Rows
from pipeline.replay.unpacking import unpack_in_parts
from pipeline.validation.rules.sequence import SPARSE, NumberOrder, check_sequence
from tests.support.metering.metering_rows import Event, Sensor, rows_of, samples_table

NO_EVENTS = pa.table({"seq": pa.array([], pa.int64()), "kind": pa.array([], pa.int8())})
NO_GAPS = pa.table({"from_seq": pa.array([], pa.int64()), "n": pa.array([], pa.int64())})
DENSE, STRETCHED = 1, 4 * SPARSE  # the distance between numbers decides between a table lookup and sorting


def sequence_findings(firsts: list[int]) -> Findings:
    """Return the findings for rows with these first numbers, in a file whose manifest has as many decisions as their range."""
    counts = [max(firsts) - min(firsts) + 1] + [0] * (len(firsts) - 1)
    samples = pa.table({"first_seq": firsts, "last_seq": firsts, "n": counts})
    manifest: Any = SimpleNamespace(first_seq=min(firsts), last_seq=max(firsts), first_ts_ms=0, dropped_decisions=0)
    findings = Findings()
    check_sequence(samples, NO_EVENTS, NO_GAPS, manifest, findings)
    return findings


@given(st.lists(st.integers(0, 40), min_size=1), st.sampled_from([DENSE, STRETCHED]))
def test_a_number_that_begins_two_rows_is_found(numbers: list[int], apart: int) -> None:
    """The lowest duplicate number is named, whether numbers are dense or sparse, and without duplicates there is no finding."""
    firsts = [number * apart for number in numbers]
    twice = sorted(number for number in set(firsts) if firsts.count(number) > 1)
    found = [finding for finding in sequence_findings(firsts).first.values() if finding.recorded == "there twice"]
    assert [finding.seq for finding in found] == twice[:1]


def parts_of(times_ms: list[int], apart: int) -> list[Rows]:
    """Return rows of two groups that alternate, with decision numbers `apart` from each other; one part per group."""
    events = [Event(at % 2, time_ms, 10, checked=True) for at, time_ms in enumerate(times_ms)]
    table = samples_table(rows_of(events, {ref: Sensor(ref, 1e9) for ref in range(2)}))
    parts = list(unpack_in_parts(table, None, 1))
    return [replace(rows, first_seq=rows.first_seq * apart, last_seq=rows.last_seq * apart) for rows in parts]


def order_findings(parts: list[Rows], unjudged_seq: int | None = None) -> list[tuple[Kind, int]]:
    """Return the findings about the order of rows, and their numbers."""
    order, findings = NumberOrder(), Findings()
    for rows in parts:
        order.add(rows, rows.first_seq != (-1 if unjudged_seq is None else unjudged_seq))
    order.check(findings)
    return [(finding.kind, finding.seq) for finding in findings.first.values()]


@pytest.mark.parametrize("apart", [DENSE, STRETCHED])
def test_a_later_number_with_an_earlier_time_is_found(apart: int) -> None:
    """A decision with a later number and an earlier time is found, also across groups that are judged separately."""
    even, odd = parts_of([at * 1_000 for at in range(40)], apart)
    assert order_findings([even, odd]) == []
    back = np.flatnonzero(odd.first_seq == 21 * apart)[0]
    crossed = odd.ts_ms.copy()
    crossed[odd.event_at[back]] -= 1_500
    assert order_findings([even, replace(odd, ts_ms=crossed)]) == [(Kind.ORDER, 21 * apart)]
    assert order_findings([even, replace(odd, ts_ms=crossed)], 21 * apart) == []


def test_rows_are_known_to_differ_only_where_every_number_is_there_once() -> None:
    """Rows count as distinct only if the rows of all groups together have every number once."""
    even, odd = parts_of([at * 1_000 for at in range(40)], DENSE)
    twice = odd.first_seq.copy()
    twice[3] = even.first_seq[3]
    for parts, known in (([even, odd], 40), ([even], 20), ([], 0), ([even, replace(odd, first_seq=twice, last_seq=twice)], 0)):
        order = NumberOrder()
        for rows in parts:
            order.add(rows, np.ones(len(rows.n), np.bool_))
        assert order.check(Findings()) == known
