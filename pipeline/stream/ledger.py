"""What a stream has written: one marker for each batch, put there last. Rows of a batch without a marker do not count."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipeline.errors import BadInputError

BATCHES: Final = "_batches"
STREAM: Final = "_stream.json"


def batch_name(batch_id: int) -> str:
    """The directory of a batch in each table."""
    return f"batch={batch_id:012d}"


def stems_before(out: Path, batch_id: int) -> set[str]:
    """Return the file sets that earlier batches hold."""
    found: set[str] = set()
    for path in (out / BATCHES).glob("*.json"):
        if int(path.stem) < batch_id:
            found |= set(json.loads(path.read_bytes())["stems"])
    return found


def put_marker(out: Path, batch_id: int, stems: Mapping[str, str], rows: Mapping[str, int]) -> None:
    """Say that a batch is whole: which file sets it holds (with the SHA-256 of their manifests), and how many rows each table got."""
    _put(out / BATCHES / f"{batch_id:012d}.json", {"stems": dict(stems), "rows": dict(rows)})


def check_checkpoint(out: Path, checkpoint: Path) -> None:
    """Numbers of batches mean something only with the checkpoint that gave them.

    Raises:
        BadInputError: `out` belongs to another checkpoint.
    """
    metadata = checkpoint / "metadata"
    known = json.loads((out / STREAM).read_bytes())["query"] if (out / STREAM).is_file() else None
    ours = json.loads(metadata.read_bytes())["id"] if metadata.is_file() else None
    if known is not None and known != ours:
        raise BadInputError(f"--out {out}: written with another checkpoint than {checkpoint}; name that one, or an empty directory")
    if known is None and ours is not None:
        raise BadInputError(f"--checkpoint {checkpoint}: has been used for another --out than {out}; name an empty directory")


def claim(out: Path, query_id: str) -> None:
    """Note whose batches these are."""
    _put(out / STREAM, {"query": query_id})


def _put(path: Path, told: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(told, indent=1) + "\n")
    temporary.replace(path)
