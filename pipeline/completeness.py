"""Completeness of runs, computed from their manifests: missing decisions and missing file sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metering_format.manifest import Manifest
from pipeline.chain import broken_link
from pipeline.manifest import RunKey
from pipeline.text import counted


@dataclass(slots=True)
class Completeness:
    """The completeness of one or more runs.

    Attributes:
        taken: number of decisions by the sequence numbers of the file sets, including missing ones.
        dropped: number of decisions that the proxy could not write, or that no file set contains.
        removed: file sets that retention removed, one line each; they are not losses.
        incomplete: known losses, one line each.
        unfinished: runs without a final file set, one line each.
    """

    taken: int = 0
    dropped: int = 0
    removed: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    @property
    def percent(self) -> float:
        """Percentage of the decisions taken that are present."""
        return 100.0 * (self.taken - self.dropped) / self.taken if self.taken else 100.0


def completeness_of(runs: Mapping[RunKey, Sequence[Manifest]], removed: Mapping[RunKey, int]) -> Completeness:
    """Return the completeness of several runs together.

    Args:
        runs: the manifests of each run, in decision order.
        removed: sequence number of the last decision that retention removed, by run.
    """
    found = Completeness()
    for key, manifests in runs.items():
        _add_run(found, manifests, removed.get(key))
    return found


def _add_run(found: Completeness, manifests: Sequence[Manifest], removed_seq: int | None) -> None:
    """Add one run to `found`; `removed_seq` is None when retention removed nothing from the run."""
    run_id = manifests[0].run_id
    # retention writes its ledger before it deletes: a pending or interrupted deletion leaves more files than the ledger says
    expected = 0 if removed_seq is None else min(removed_seq + 1, manifests[0].first_seq)
    if expected:
        found.removed.append(f"run {run_id}: decisions 0 to {expected - 1} were removed by retention")
    for before, manifest in zip((None, *manifests), manifests, strict=False):
        link = broken_link(manifest, before, is_cut=removed_seq is not None)
        if manifest.first_seq != expected:
            missing = max(manifest.first_seq - expected, 0)
            found.dropped += missing
            found.taken += missing
            found.incomplete.append(
                f"run {run_id}: decisions {expected} to {manifest.first_seq - 1} are in no manifest; a file set was removed or is late"
            )
        elif link is not None:
            found.incomplete.append(f"run {run_id}: {link}")
        found.taken += manifest.last_seq - manifest.first_seq + 1
        found.dropped += manifest.dropped_decisions
        found.incomplete += _own_losses(manifest)
        expected = manifest.last_seq + 1
    if not manifests[-1].final:
        found.unfinished.append(f"run {run_id}: no final file set; the proxy still runs, or was killed")


def _own_losses(manifest: Manifest) -> list[str]:
    """Return the losses that a manifest reports for its own file set, one line each."""
    lines = []
    if manifest.truncated:
        usage = f", of usage {counted(manifest.dropped_usage_rows, 'row')} at most" if manifest.dropped_usage_rows else ""
        lines.append(f"{manifest.file_set} was put together after a crash; what came after its last flush is lost{usage}")
    if manifest.dropped_decisions:
        lines.append(f"{manifest.file_set} reports {counted(manifest.dropped_decisions, 'decision')} that could not be written")
    return [f"run {manifest.run_id}: {line}" for line in lines]
