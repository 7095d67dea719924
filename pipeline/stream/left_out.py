"""Whether a source has passed over a file set: what is there, by its manifests, against what the batches hold."""

from pathlib import Path

from pipeline.errors import IncompleteError
from pipeline.files import check_readable
from pipeline.manifest import MANIFESTS
from pipeline.stream.ledger import stems_before
from pipeline.stream.settings import StreamSettings


def check_none_left_out(directory: Path, settings: StreamSettings) -> int:
    """Return how many file sets of `directory` are landed: all that were there when the last batch was planned.

    Every batch has been compared with the manifests of its file sets, row by row added up, so no row is left out if no file set is.

    Raises:
        BadInputError: a directory cannot be read.
        IncompleteError: one that was there is in no batch, such as a late one that the source took for old.
    """
    check_readable(directory / MANIFESTS)
    there = {str(path.relative_to(directory)) for path in (directory / MANIFESTS).rglob("*.json")}
    landed = stems_before(settings.out, 2**62)
    began = _began(settings.checkpoint)
    still = [path for path in sorted(there - landed) if (directory / path).stat().st_mtime < began]
    if still:
        raise IncompleteError(f"{settings.source}: {len(still)} file sets were left out, {still[0]} first; use a new --checkpoint")
    return len(there & landed)


def _began(checkpoint: Path) -> float:
    """When the last batch was planned: what came after it is for the next call."""
    return max((path.stat().st_mtime for path in (checkpoint / "offsets").glob("[0-9]*")), default=0.0)
