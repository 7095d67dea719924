"""The decisions of a batch."""

import numpy as np

from proxy.meter.batch import Batch
from proxy.metering.conversion.runs import Runs, runs_of
from proxy.metering.raw import SegmentBatch

SHOWN = ("group_ref", "ts_ms", "value", "throttle_ms", "kind")


def decisions_of(batch: Batch) -> list[dict[str, int]]:
    """Return the decisions of a batch in order; they are numbered consecutively from the batch's first number."""
    if not batch.count:
        return []
    noted, reported, _ = runs_of([SegmentBatch(batch.first_seq, batch.words, batch.records)])
    runs: Runs = noted.apart(noted.count > 1)
    assert runs.seq.tolist() == list(range(batch.first_seq, batch.first_seq + len(runs)))
    assert all(getattr(runs, name)[reported.seq - batch.first_seq].tolist() == reported.records[name].tolist() for name in SHOWN)
    columns = [getattr(runs, name).astype(np.int64).tolist() for name in SHOWN]
    return [dict(zip(SHOWN, row, strict=True)) for row in zip(*columns, strict=True)]
