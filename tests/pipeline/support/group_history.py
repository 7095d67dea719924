"""Histories of one group in one worker, by its records and the times at which it began to use a row."""

import numpy as np

from pipeline.validation.rules.workers.group_histories import OWN, GroupHistory, Skip, WorkerRun

RUN = WorkerRun(("a", "r"), "s", "0", ("0",), 0, 60_000, True, 0)


def history_of(
    events: list[tuple[int, int]], claims: list[tuple[int, int]], *, bound: float = 1e9, run: WorkerRun = RUN, quota_type: str = "Request"
) -> GroupHistory:
    """Return a history with own records (ms, value), and with rows that were used from these times and totals on."""
    ts_ms, value = (np.array([event[at] for event in events], np.int64) for at in (0, 1))
    return GroupHistory(
        ts_ms=ts_ms,
        value=value,
        checked=np.ones(len(events), np.bool_),
        source=np.array([OWN] * len(events)),
        total=np.zeros(len(events), np.int64),
        seq=np.arange(len(events)),
        paced=np.full(len(events), run.burst_ms > 0),
        excused=np.zeros(len(events), np.bool_),
        bound=bound,
        run=run,
        group_ref=0,
        identity=(quota_type, "broker", "1", ""),
        skips=tuple(Skip(at_ms, "0", 0, total, number) for number, (at_ms, total) in enumerate(claims)),
        is_renamed=len(claims) > 1,
    )
