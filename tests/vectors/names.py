"""Replays sanitizer and mute-state tables."""

from collections.abc import Iterator
from typing import Any

from proxy.session.throttle.mute_state import IllegalMuteEvent, MuteEvent, MuteState, maybe_unmute, mute, next_state, reads_enabled
from quota.entity import desanitize, sanitize
from quota.errors import SanitizedNameError
from tests.vectors.compare import Case, differences, rows


def run_sanitizer(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Encode and decode names, quote tag values."""
    for index, row in rows(case, columns, "rows"):
        if "encoded" in row:
            got = {"decoded": _decoded(row["encoded"])}
        else:
            raw = row["raw"]
            got = {"sanitized": sanitize(raw), "desanitized": desanitize(sanitize(raw))}
        yield from differences(f"row {index}", row, got)


def _decoded(encoded: str) -> str | None:
    try:
        return desanitize(encoded)
    except SanitizedNameError:
        return None


def run_mute_state(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Every state with every event."""
    for index, row in rows(case, columns, "rows"):
        yield from differences(f"row {index}", row, _transition(MuteState[row["state"]], row["event"]))


def _transition(state: MuteState, event: str) -> dict[str, Any]:
    returned = None
    if event == "mute()":
        after: MuteState | None = mute(state)
    elif event == "maybeUnmute()":
        after, returned = maybe_unmute(state)
    else:
        try:
            after = next_state(state, MuteEvent[event])
        except IllegalMuteEvent:
            after = None
    return {
        "next_state": None if after is None else after.name,
        "reads_enabled_after": reads_enabled(state if after is None else after),
        "returned": returned,
    }
