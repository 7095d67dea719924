"""Tables in an object store: a roll-up builds in a folder of this machine, and writes to the store what it has built.

The folder gets the ledger, and those files of earlier runs that the summary and the report read. The ledger is written last, as on a local
disk. A run that ends before has replaced some partitions; the ledger does not have them, so the next run builds them again. No store has
renames: a reader may see new partitions beside old ones until the ledger is written.
"""

import contextlib
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
import pyarrow.parquet as pq

from pipeline.errors import IncompleteError, PipelineError
from pipeline.rollup.ledger import NAME, Ledger
from pipeline.rollup.published.report_files import NEWEST, files_of, newest, summed_files
from pipeline.rollup.run import replaced_files
from pipeline.rollup.settings import CHARGES, RollupResult
from pipeline.storage.paths import StorePath

THREADS: Final = 8
_BATCH: Final = "batch="


@contextlib.contextmanager
def tables_at(place: StorePath) -> Iterator["StoreTables"]:
    """Open the tables for one roll-up, and write to the store what it has built.

    Raises:
        BadInputError: the store refuses, or cannot be reached.
        IncompleteError: another roll-up has written meanwhile. Nothing was written.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-tables-") as temporary:
        folder = Path(temporary, "tables")
        try:
            tables = StoreTables(place, folder)
            yield tables
            tables.write_back()
        except PipelineError as error:
            raise type(error)(str(error).replace(str(folder), str(place))) from error


class StoreTables:
    """The tables of a store during one roll-up.

    Attributes:
        folder: the output directory of the roll-up, with the files that are in no table, and, after `bring`, those that a report reads.
    """

    def __init__(self, place: StorePath, folder: Path) -> None:
        self.folder, self._place = folder, place
        self._there = {str(path.relative_to(place)) for path in place.rglob("*")}
        self._brought: set[str] = set()
        self._replaced: Collection[str] = ()
        folder.mkdir()
        for below in {_seen_folder(name) for name in self._there}:
            (folder / below).mkdir(parents=True, exist_ok=True)
        others = sorted(name for name in self._there if "/" not in name)
        self._bring(others)
        self._contents = {name: (folder / name).read_bytes() for name in others}

    def publish(self, result: RollupResult) -> None:
        """Note which files of the store the run has replaced."""
        self._replaced = replaced_files(self._there, result, self._ledger_before().pending)

    def bring(self, *, report: bool) -> None:
        """Bring the files that a summary reads, and those of a report, beside the new ones.

        Raises:
            BadInputError: the store refuses, or cannot be reached.
            IncompleteError: another roll-up has removed one meanwhile.
        """
        names = self._there.difference(self._replaced).union(self._made())
        self._bring(summed_files(names))
        for table in NEWEST if report else ():
            self._expect(reversed(files_of(names, table)))
            newest(names, table, self._rows_of)

    def write_back(self) -> None:
        """Write what the run has built, and remove what it replaced.

        Raises:
            BadInputError: the store refuses, or cannot be reached.
            IncompleteError: another roll-up has written meanwhile. Nothing was written.
        """
        made = self._made()
        removed = set(self._replaced) - made
        if not made and not removed:
            return
        if (self._place / NAME).read_now() != self._contents.get(NAME):
            raise self._overtaken()
        self._note_begin(made)
        with ThreadPoolExecutor(THREADS) as threads:
            for done in [threads.submit(self._put, name) for name in made if name != NAME]:
                done.result()
            for done in [threads.submit((self._place / name).unlink) for name in removed]:
                done.result()
        if NAME in made:
            self._put(NAME)

    def _made(self) -> set[str]:
        """Return the files that the run has made or changed."""
        here = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        return {name for name in here if not self._is_as_brought(name)}

    def _is_as_brought(self, name: str) -> bool:
        return name in self._brought and (name not in self._contents or self._contents[name] == (self.folder / name).read_bytes())

    def _bring(self, names: Sequence[str]) -> None:
        self._expect(names)
        for name in names:
            self._bring_one(name)

    def _expect(self, names: Iterable[str]) -> None:
        self._place.expect(self._place / name for name in names if not (self.folder / name).exists())

    def _bring_one(self, name: str) -> None:
        """Copy a file of the store to the folder, unless the folder has it."""
        copy = self.folder / name
        if copy.exists():
            return
        try:
            content = (self._place / name).read_bytes()
        except FileNotFoundError as error:
            raise self._overtaken() from error
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        self._brought.add(name)

    def _rows_of(self, name: str) -> int:
        self._bring_one(name)
        return int(pq.read_metadata(self.folder / name).num_rows)

    def _put(self, name: str) -> None:
        (self._place / name).write_bytes((self.folder / name).read_bytes())

    def _note_begin(self, made: Collection[str]) -> None:
        """Write what the next run has to know if this one ends early: that these are tables, and the name of a new batch of adjustments.

        The next run removes that batch.
        """
        new = (name for name in made if name not in self._there)
        batches = {part.removeprefix(_BATCH) for name in new for part in name.split("/") if part.startswith(_BATCH)}
        if batches or NAME not in self._contents:
            old = self._ledger_before()
            old.pending = min(batches, default=None)
            (self._place / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(old), indent=1) + b"\n")

    def _ledger_before(self) -> Ledger:
        content = self._contents.get(NAME)
        return Ledger() if content is None else msgspec.json.decode(content, type=Ledger)

    def _overtaken(self) -> IncompleteError:
        return IncompleteError(
            f"{self._place}: another roll-up has written to it meanwhile; run this one again, and let one at a time write"
        )


def _seen_folder(name: str) -> PurePosixPath:
    """Return the folder of a file as far as a roll-up looks at it: the table, and of charges the day."""
    folder = PurePosixPath(name).parent
    return folder if CHARGES in folder.parts else PurePosixPath(*folder.parts[:1])
