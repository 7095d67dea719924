"""Tables in an object store: a roll-up works on a copy, and writes back what changed.

The ledger is written last, as on a local disk. A run that ends before has replaced some partitions; the ledger does not have them, so the
next run builds them again. No store has renames: a reader may see new partitions beside old ones until the ledger is written.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from pipeline.errors import IncompleteError, PipelineError
from pipeline.rollup.ledger import NAME, Ledger
from pipeline.storage.paths import StorePath

THREADS: Final = 8
_BATCH: Final = "batch="


@contextlib.contextmanager
def tables_at(place: StorePath) -> Iterator[Path]:
    """Copy the tables to this machine for a block, and write back what the block changed.

    Raises:
        BadInputError: the store refuses, or cannot be reached.
        IncompleteError: another roll-up has written meanwhile. Nothing was written.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-tables-") as folder:
        copy = Path(folder, "tables")
        try:
            before = _copy(place, copy)
            ledger = (copy / NAME).read_bytes() if NAME in before else None
            yield copy
            _write_back(place, copy, before, ledger)
        except PipelineError as error:
            raise type(error)(str(error).replace(str(copy), str(place))) from error


def _copy(place: StorePath, copy: Path) -> dict[str, str]:
    """Copy all files; return the SHA-256 of each by its path."""
    paths = list(place.rglob("*"))
    place.expect(paths)
    copy.mkdir()
    found = {}
    for path in paths:
        data, name = path.read_bytes(), str(path.relative_to(place))
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(data)
        found[name] = _sha256_of(data)
    return found


def _write_back(place: StorePath, copy: Path, before: Mapping[str, str], ledger: bytes | None) -> None:
    after = {str(path.relative_to(copy)): _sha256_of(path.read_bytes()) for path in copy.rglob("*") if path.is_file()}
    changed = [name for name, sha256 in after.items() if before.get(name) != sha256]
    if not changed and after.keys() == before.keys():
        return
    if (place / NAME).read_now() != ledger:
        raise IncompleteError(f"{place}: another roll-up has written to it meanwhile; run this one again, and let one at a time write")
    _note_begin(place, changed, before, ledger)
    with ThreadPoolExecutor(THREADS) as threads:
        for done in [threads.submit(_put, place, copy, name) for name in changed if name != NAME]:
            done.result()
        for done in [threads.submit((place / name).unlink) for name in before.keys() - after.keys()]:
            done.result()
    if NAME in changed:
        _put(place, copy, NAME)


def _put(place: StorePath, copy: Path, name: str) -> None:
    (place / name).write_bytes((copy / name).read_bytes())


def _note_begin(place: StorePath, changed: Iterable[str], before: Mapping[str, str], ledger: bytes | None) -> None:
    """Write what the next run has to know if this one ends early: that these are tables, and the name of a new batch of adjustments.

    The next run removes that batch.
    """
    batches = {part.removeprefix(_BATCH) for name in changed if name not in before for part in name.split("/") if part.startswith(_BATCH)}
    if batches or ledger is None:
        old = Ledger() if ledger is None else msgspec.json.decode(ledger, type=Ledger)
        old.pending = min(batches, default=None)
        (place / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(old), indent=1) + b"\n")


def _sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
