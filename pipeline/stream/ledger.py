"""Markers of a stream, one per batch, written after the batch's rows. Rows of a batch without a marker do not count."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError
from pipeline.files import write_whole
from pipeline.manifest import FoundManifest
from pipeline.storage.paths import AnyPath, read_if_there
from pipeline.stream.batch_files import BatchFiles
from pipeline.stream.checkpoint import output_of, query_of
from pipeline.stream.result import FINDINGS_MAX, Written
from pipeline.validation.divergence import Divergence

BATCHES: Final = "_batches"
STREAM: Final = "_stream.json"
REPORTED: Final = "_reported.json"
VERDICTS: Final = "verdicts"


class Marker(msgspec.Struct):
    """The marker of a batch. Those of earlier versions have neither divergences nor manifests.

    Attributes:
        stems: the SHA-256 of each manifest, by its path below the metering directory.
        rows: number of rows by table.
        manifests: in the order of `stems`.
    """

    stems: dict[str, str]
    rows: dict[str, int] = {}
    divergences: int | None = None
    findings: list[Divergence] = []
    manifests: list[Manifest] = []

    def file_sets(self) -> dict[str, Manifest | None]:
        """Return the manifests by path; None: the marker does not have it."""
        manifests: Sequence[Manifest | None] = self.manifests or [None] * len(self.stems)
        return dict(zip(self.stems, manifests, strict=True))


def batch_name(batch_id: int) -> str:
    """Return the name of a batch's directory in each table."""
    return f"batch={batch_id:012d}"


def marker_files(out: AnyPath) -> BatchFiles[Marker]:
    """Return the files of the markers."""
    return BatchFiles(out, BATCHES, Marker, "markers of `sluice meter stream`")


def read_markers(out: AnyPath) -> Iterator[tuple[int, Marker]]:
    """Yield the marker of each complete batch, in order.

    Raises:
        BadInputError: a marker is invalid, or an object store refuses.
    """
    for batch_id, marker in marker_files(out).read():
        if marker.divergences is None and isinstance(out, Path):
            marker.divergences = _in_table(out, batch_id)
        yield batch_id, marker


def _in_table(out: Path, batch_id: int) -> int:
    """Return the number of divergences in a batch's rows, since markers of earlier versions do not have it."""
    files = (out / VERDICTS / batch_name(batch_id)).glob("*.parquet")
    return sum(sum(pq.read_table(file, columns=["divergences"], partitioning=None).column(0).to_pylist()) for file in files)


def put_marker(out: AnyPath, batch_id: int, found: Sequence[FoundManifest], written: Written) -> None:
    """Write the marker of a complete batch: its file sets, rows by table, and divergences."""
    stems, manifests = {one.path: one.sha256 for one in found}, [one.manifest for one in found]
    marker = Marker(stems, dict(written.rows), written.divergences, written.findings[:FINDINGS_MAX], manifests)
    _put(marker_files(out).path(batch_id), msgspec.to_builtins(marker))


def reported_before(out: AnyPath) -> int | None:
    """Return the number of divergences that the last call reported; None: there was none."""
    text = read_if_there(out / REPORTED)
    return None if text is None else int(json.loads(text)["divergences"])


def put_reported(out: AnyPath, divergences: int) -> None:
    """Record the number of divergences that a call reports."""
    _put(out / REPORTED, {"divergences": divergences})


def name_of(out: AnyPath) -> str:
    """Return the name of an output for a checkpoint: an absolute path, or a URL without credentials."""
    return str(out.resolve() if isinstance(out, Path) else out)


def check_checkpoint(out: AnyPath, checkpoint: AnyPath, name: str | None = None) -> None:
    """Check that `out` belongs to the checkpoint, since batch numbers have a meaning only within one checkpoint.

    Args:
        out: the directory.
        checkpoint: the checkpoint.
        name: the output that the checkpoint begins with; None: it is the directory.

    Raises:
        BadInputError: `out` belongs to another checkpoint.
    """
    text = read_if_there(out / STREAM)
    known, ours = None if text is None else json.loads(text)["query"], query_of(checkpoint)
    if known is not None and known != ours:
        raise BadInputError(f"--out {out}: written with another checkpoint than {checkpoint}; name that one, or an empty directory")
    if known is None and ours is not None and output_of(checkpoint) != (name or name_of(out)):
        raise BadInputError(f"--checkpoint {checkpoint}: has been used for another --out than {out}; name an empty directory")


def claim(out: AnyPath, query_id: str) -> None:
    """Record the query that the batches belong to."""
    _put(out / STREAM, {"query": query_id})


def _put(path: AnyPath, content: object) -> None:
    write_whole(path, json.dumps(content, indent=1) + "\n")
