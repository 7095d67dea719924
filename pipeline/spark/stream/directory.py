"""Follows a metering directory: it is listed again and again, and what has not landed is the next batch."""

from __future__ import annotations

import time
from typing import Final

from pipeline.errors import IncompleteError
from pipeline.spark.stream.batches import Batches
from pipeline.stream.checkpoint import begin_query, planned_of, put_planned
from pipeline.stream.settings import check_listed

FILE_SETS_MAX: Final = 64
"""Highest number of file sets of a batch."""
INTERVAL_S: Final = 10.0


def follow_directory(batches: Batches) -> None:
    """Process what is there (`once`), or whatever arrives until Ctrl-C.

    Args:
        batches: the call.

    Raises:
        BadInputError, IncompleteError: as for `Batches.process`; IncompleteError also for `once` that was stopped.
    """
    if batches.settings.once:
        check_listed(batches.there)
    batches.output.claim(begin_query(batches.checkpoint, batches.output.name))
    try:
        batch_id = _repeat(batches, batches.next_id)
        while True:
            began_s = time.monotonic()
            batch_id = _process_new(batches, batch_id)
            if batches.settings.once:
                return
            time.sleep(max(began_s + INTERVAL_S - time.monotonic(), 0.0))
            batches.there = batches.listing.now()
    except KeyboardInterrupt:
        batches.forget_unpublished()
        if batches.settings.once:
            raise IncompleteError(f"{batches.settings.source}: was stopped before all file sets had landed; run it again") from None


def _repeat(batches: Batches, batch_id: int) -> int:
    """Process the batch that a call before has begun, with the same file sets; return the number of the next batch."""
    planned = planned_of(batches.checkpoint, batch_id)
    if not planned:
        return batch_id
    missing = next((path for path in planned if path not in batches.there.sizes), None)
    if missing is not None:
        raise IncompleteError(
            f"{batches.there.directory / missing}: is missing, and the batch that was cut short has it; restore it,"
            " or use a new --checkpoint and --out"
        )
    batches.process(batch_id, batches.there.read(planned))
    return batch_id + 1


def _process_new(batches: Batches, batch_id: int) -> int:
    """Process all file sets that have not landed; return the number of the next batch."""
    fresh = sorted(path for path in batches.there.new if path not in batches.history)
    batches.waiting = {path.rpartition("/")[2].removesuffix(".json"): path for path in fresh}
    for first in range(0, len(fresh), FILE_SETS_MAX):
        paths = fresh[first : first + FILE_SETS_MAX]
        found = batches.there.read(paths)
        put_planned(batches.checkpoint, batch_id, paths)
        batches.process(batch_id, found)
        batch_id += 1
    return batch_id
