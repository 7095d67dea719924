"""Checks the recorded settings of the proxy: each file set begins with the settings that the one before it ended with."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from metering_format.manifest import Manifest
from pipeline.file_set import FileSet
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.validation.rules.application import states_in_order

MODES: Final = ("delay", "mute", "observe")
NUMBERS: Final = ("num_samples", "window_ms")
SETTINGS: Final = (
    *("mode", "scope", "delay_max_ms", *NUMBERS),
    *("produce_enabled", "fetch_enabled", "request_enabled", "level", "switches", "pacing"),
)
OF_NAMES: Final = ("switches", "pacing")
"""Settings with names, which `sluice meter forget` changes."""

State = Mapping[str, Any]
"""A row of `states`."""


def states_of(file_set: FileSet, findings: Findings) -> list[State]:
    """Return the settings of the proxy by sequence number, and add a finding for each impossible row."""
    columns = ["from_seq", *SETTINGS]
    states: list[State] = [{name: state[name] for name in columns} for state in file_set.made_of("states", states_in_order)]
    declared = file_set.manifest.settings
    for state in states:
        if state["mode"] not in MODES:
            _add(findings, file_set.manifest, state, " or ".join(MODES), str(state["mode"]))
        for name in NUMBERS:  # they are constant within a run
            if state[name] != declared.get(name, state[name]):
                _add(findings, file_set.manifest, state, f"{name} {declared[name]}, as in the manifest", str(state[name]))
    return states


class RunSettings:
    """The settings of the proxy in a run, whose file sets are added in order.

    A change after the last decision of a file set may or may not be the first of the next one: after a disk failure between the two, the
    proxy writes it again.

    Attributes:
        findings: the divergences so far.
    """

    def __init__(self) -> None:
        self.findings = Findings()
        self._before: tuple[Manifest, Sequence[State]] | None = None

    def add(self, manifest: Manifest, states: Sequence[State]) -> None:
        """Compare the first settings of a file set with the settings of the file set before it."""
        if self._before is not None:
            self._compare(*self._before, manifest, states)
        self._before = manifest, states

    def _compare(self, before: Manifest, earlier: Sequence[State], manifest: Manifest, states: Sequence[State]) -> None:
        if not earlier or not states or manifest.previous != before.last_file_set or manifest.first_seq != before.last_seq + 1:
            return
        names = [name for name in SETTINGS if name not in OF_NAMES or not (before.replaces or manifest.replaces)]  # a user was erased
        in_force = max((at for at, state in enumerate(earlier) if state["from_seq"] <= before.last_seq), default=0)
        left = [[state[name] for name in names] for state in earlier[in_force:]]
        begins = [states[0][name] for name in names]
        if begins not in left:
            differing = [at for at, value in enumerate(begins) if value != left[-1][at]]
            expected, recorded = (", ".join(f"{names[at]} {values[at]}" for at in differing) for values in (left[-1], begins))
            _add(self.findings, manifest, states[0], f"as {before.file_set} ends: {expected}", recorded)


def _add(findings: Findings, manifest: Manifest, state: State, expected: str, recorded: str) -> None:
    place = (WHOLE_FILE, int(state["from_seq"]), manifest.first_ts_ms)
    findings.add(Finding(Kind.GAP, *place, expected, recorded, "states of the file"))
