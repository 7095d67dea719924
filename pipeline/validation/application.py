"""What was decided was done, by the rules of the mode that held at the time.

In `observe` nothing is done. In `mute` and `delay` the client is told, or held for, at least what this sensor decided: a longer wait of
another quota may cover it. A connection that keeps a group membership alive is excused, and says so.
"""

import numpy as np

from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import EXCUSED, NOT_LISTED, Flags, Rows
from pipeline.stem import Stem, python_rows

OBSERVE = "observe"


def check_applied(rows: Rows, judged: Flags, stem: Stem, findings: Findings) -> None:
    """Compare every wait that was decided with what was applied."""
    states = sorted(python_rows(stem.read("states")), key=lambda state: int(state["from_seq"]))
    decided = judged[rows.row_of] & (rows.throttle_ms > 0)
    if not states:
        return
    starts = np.array([state["from_seq"] for state in states], np.int64)
    observing = np.array([state["mode"] == OBSERVE for state in states])
    state = np.maximum(np.searchsorted(starts, rows.first_seq[rows.row_of], side="right") - 1, 0)
    in_observe = observing[state]
    applied = np.where(rows.applied_ms == NOT_LISTED, 0, rows.applied_ms)
    wrong = decided & np.where(in_observe, applied > 0, (applied != EXCUSED) & (applied < rows.throttle_ms))
    where = np.flatnonzero(wrong)
    groups = rows.group_ref[rows.row_of[where]]
    _, firsts, counts = np.unique(groups, return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        event = int(where[index])
        expected = "0 ms, since the mode is observe" if in_observe[event] else f"{rows.throttle_ms[event]} ms or more"
        findings.add(
            Finding(
                Kind.NOT_APPLIED,
                int(groups[index]),
                int(rows.first_seq[rows.row_of[event]]),
                int(rows.ts_ms[event]),
                expected,
                f"{applied[event]} ms",
                "wait that was applied",
            ),
            int(number),
        )
