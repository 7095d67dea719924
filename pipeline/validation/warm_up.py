"""Which earlier file sets of a run can affect the verdict of a file set, and rows of the last one that are kept for it."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from metering_format.manifest import Manifest
from pipeline.file_set import FileSet

WINDOWS: Final = 4
"""A file set is judged with the decisions of so many windows before it."""

Work = tuple[Manifest, ...]
"""A file set to judge, the last one, after the earlier ones of its run that can affect it."""


def warm_up_span_ms(manifest: Manifest) -> int:
    """Return for how long decisions can affect those after them, with the settings of a file set."""
    return WINDOWS * (manifest.num_samples + 1) * manifest.window_ms


def work_of(run: Sequence[Manifest], at: int, span_ms: int) -> Work:
    """Return the work for the file set at a position of a run.

    Args:
        run: the file sets of the run, in decision order.
        at: position of the file set to judge.
        span_ms: the longest span of the run.
    """
    since_ms, first = run[at].first_ts_ms - span_ms, at
    while first > 0 and run[first - 1].last_ts_ms > since_ms:
        first -= 1
    return tuple(run[min(first, max(at - 1, 0)) : at + 1])


class Tail:
    """The last rows of the file set that was judged last. They are the warm-up of the next one, which does not read them again.

    A file set of minutes has few such rows: those of its last seconds.

    Attributes:
        following: manifest of the file set after the one that is judged; None: there is none, and no rows are kept.
    """

    def __init__(self) -> None:
        self.following: Manifest | None = None
        self._of: tuple[FileSet, int] | None = None
        self._rows = pa.table({})

    def keep(self, file_set: FileSet, samples: pa.Table, span_ms: int) -> None:
        """Keep the rows that the following file set needs, instead of those kept before.

        Args:
            file_set: the file set.
            samples: all of its rows of `samples`.
            span_ms: for how long a row can affect those after it.
        """
        self._of = None
        if self.following is not None:
            after_ms = self.following.first_ts_ms - span_ms
            self._of = file_set, after_ms
            self._rows = samples.filter(pc.greater(samples.column("last_event_ms"), after_ms))

    def rows_of(self, file_set: FileSet, schema: pa.Schema, after_ms: int) -> pa.Table | None:
        """Return the rows of a file set whose last event is later than `after_ms`; None: these are not kept, or have other columns."""
        return self._rows if self._of == (file_set, after_ms) and self._rows.schema == schema else None
