"""Compares the first balance of each token bucket in a file set with its last balance in earlier ones."""

from collections.abc import Mapping

from metering_format.manifest import Manifest
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.validation.rules.buckets import BucketEnds


class Breaks:
    """Counts the losses of a run, whose file sets are given in order."""

    def __init__(self) -> None:
        self._number, self._next_seq = 0, 0

    def before(self, manifest: Manifest) -> int:
        """Return the number of losses before the next file set, of which it may have one itself.

        Between file sets with equal numbers nothing was lost. The number is 0 if nothing was lost since the first decision of the run.
        """
        has_loss = manifest.dropped_decisions > 0
        self._number += manifest.first_seq != self._next_seq or has_loss
        self._next_seq = manifest.last_seq + 1
        number = self._number
        self._number += has_loss
        return number


class RunBalances:
    """The balances of the buckets of a run, whose file sets are added in order. A loss in between excuses a difference.

    Attributes:
        findings: the divergences so far.
    """

    def __init__(self) -> None:
        self.findings = Findings()
        self._known: dict[int, tuple[int, BucketEnds]] = {}

    def add(self, breaks: int, buckets: Mapping[int, BucketEnds]) -> None:
        """Add a file set.

        Args:
            breaks: the number of losses before it, as `Breaks` counts them.
            buckets: first and last balance of each of its buckets.
        """
        for ref, ends in buckets.items():
            breaks_before, before = self._known.get(ref, (-1, ends))
            if breaks_before == breaks:
                if (ends.before, ends.since_ms) != (before.after, before.until_ms):
                    self._add(ref, ends, f"{before.after!r} of {before.until_ms} ms")
            elif breaks == 0 and not ends.is_new and ends.before is not None:
                self._add(ref, ends, "a full one, since it is new")
            self._known[ref] = breaks, ends

    def _add(self, ref: int, ends: BucketEnds, expected: str) -> None:
        recorded = f"{ends.before!r} of {ends.since_ms} ms"
        what = "balance that a bucket goes on with"
        self.findings.add(Finding(Kind.SEGMENT, ref, ends.first_seq, ends.first_ts_ms, expected, recorded, what))
