"""Markers of a stream, one per batch, written after the batch's rows. Rows of a batch without a marker do not count."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from pipeline.errors import BadInputError
from pipeline.files import write_whole
from pipeline.stream.result import FINDINGS_MAX, Written
from pipeline.validation.divergence import Divergence

BATCHES: Final = "_batches"
STREAM: Final = "_stream.json"
REPORTED: Final = "_reported.json"
VERDICTS: Final = "verdicts"


class _Found(msgspec.Struct):
    """The divergences of a marker; `divergences` is None in markers of earlier versions."""

    divergences: int | None = None
    findings: list[Divergence] = []


def batch_name(batch_id: int) -> str:
    """Return the name of a batch's directory in each table."""
    return f"batch={batch_id:012d}"


def batch_ids(out: Path) -> list[int]:
    """Return the numbers of the complete batches, in order."""
    return sorted(int(path.stem) for path in (out / BATCHES).glob("*.json"))


def file_sets_before(out: Path, batch_id: int) -> set[str]:
    """Return the file sets of earlier batches."""
    found: set[str] = set()
    for path in (out / BATCHES).glob("*.json"):
        if int(path.stem) < batch_id:
            found |= set(json.loads(path.read_bytes())["stems"])
    return found


def put_marker(out: Path, batch_id: int, file_sets: Mapping[str, str], written: Written) -> None:
    """Write the marker of a complete batch: its file sets with the SHA-256 of their manifests, rows by table, and divergences."""
    findings = msgspec.to_builtins(written.findings[:FINDINGS_MAX])
    content = {"stems": dict(file_sets), "rows": dict(written.rows), "divergences": written.divergences, "findings": findings}
    _put(out / BATCHES / f"{batch_id:012d}.json", content)


def divergences_of(out: Path, batches: Iterable[int]) -> tuple[int, list[Divergence]]:
    """Return the number of divergences of some batches, and the first of each group and file set, up to the number that is kept.

    Raises:
        BadInputError: a marker is invalid.
    """
    number, findings = 0, list[Divergence]()
    for batch_id in batches:
        path = out / BATCHES / f"{batch_id:012d}.json"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Found)
        except msgspec.MsgspecError as error:
            raise BadInputError(f"{path}: not a marker of `sluice meter stream` ({error}); name an empty --out and --checkpoint") from error
        number += _in_table(out, batch_id) if found.divergences is None else found.divergences
        findings += found.findings[: FINDINGS_MAX - len(findings)]
    return number, findings


def _in_table(out: Path, batch_id: int) -> int:
    """Return the number of divergences in a batch's rows, since markers of earlier versions do not have it."""
    files = (out / VERDICTS / batch_name(batch_id)).glob("*.parquet")
    return sum(sum(pq.read_table(file, columns=["divergences"], partitioning=None).column(0).to_pylist()) for file in files)


def divergences_before(out: Path) -> int:
    """Return the number of divergences that the last call reported; without one, that of the batches.

    Raises:
        BadInputError: a marker is invalid.
    """
    path = out / REPORTED
    return json.loads(path.read_bytes())["divergences"] if path.is_file() else divergences_of(out, batch_ids(out))[0]


def put_reported(out: Path, divergences: int) -> None:
    """Record the number of divergences that a call reports."""
    _put(out / REPORTED, {"divergences": divergences})


def check_checkpoint(out: Path, checkpoint: Path) -> None:
    """Check that `out` belongs to the checkpoint, since batch numbers have a meaning only within one checkpoint.

    Raises:
        BadInputError: `out` belongs to another checkpoint.
    """
    known = json.loads((out / STREAM).read_bytes())["query"] if (out / STREAM).is_file() else None
    ours = query_of(checkpoint)
    if known is not None and known != ours:
        raise BadInputError(f"--out {out}: written with another checkpoint than {checkpoint}; name that one, or an empty directory")
    if known is None and ours is not None:
        raise BadInputError(f"--checkpoint {checkpoint}: has been used for another --out than {out}; name an empty directory")


def query_of(checkpoint: Path) -> str | None:
    """Return the query of a checkpoint; None: it has not been used."""
    metadata = checkpoint / "metadata"
    return json.loads(metadata.read_bytes())["id"] if metadata.is_file() else None


def claim(out: Path, query_id: str) -> None:
    """Record the query that the batches belong to."""
    _put(out / STREAM, {"query": query_id})


def _put(path: Path, content: object) -> None:
    write_whole(path, json.dumps(content, indent=1) + "\n")
