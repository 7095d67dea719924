"""Judges file sets in tasks of Spark. Each task reads its own file sets, and as much of earlier ones as their warm-up needs.

A task returns verdicts, never rows of the files. There is no shuffle, so one hot group costs no more than many cold ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from metering_format.manifest import Manifest
from pipeline.errors import IncompleteError
from pipeline.file_set import FileSet
from pipeline.manifest import RunKey, brief
from pipeline.memory import keep_memory
from pipeline.parquet.small_files import SmallFiles
from pipeline.spark.parallelism import TASKS_PER_CORE, parallelism_of
from pipeline.spark.placement import packed, unpacked, work_in_tasks
from pipeline.spark.remote import rows_at
from pipeline.spark.worker import settle
from pipeline.storage.held import held_directory
from pipeline.storage.paths import AnyPath, StorePath, path_of_messages
from pipeline.validation.file_set_verdict import FileSetVerdict
from pipeline.validation.rules.whole_run.balances import Breaks
from pipeline.validation.run_verdicts import DECISIONS_MAX, judge_run
from pipeline.validation.run_verdicts import FILE_SETS_MAX as TOGETHER_MAX
from pipeline.validation.warm_up import Work, warm_up_span_ms, work_of
from pipeline.validation.whole_run import JudgedFileSet, shares_of

CHUNKS_MAX: Final = 4
"""Highest number of chunks of one task."""
CHUNK_BYTES_MAX: Final = 4 * 2**20
"""Highest number of bytes of the file sets of a chunk, if it has several."""
GROUPS_OF_SHARE: Final = 1_024
"""Approximate number of groups of a run that a task judges over the whole run."""

JUDGED: Final = "proxy_id string, run_id string, share int, position int, judged binary"
"""Columns of verdicts: the run, the share of its groups, the position of the first file set in the run, and a list of `JudgedFileSet`."""


Check = Callable[[AnyPath, Manifest, Mapping[str, bytes]], None]
"""Gets the directory for messages, a manifest, and the content of files by path."""


class Place(msgspec.Struct, frozen=True):
    """The place of a file set in its run: its position, and the number of losses before it, as `Breaks` counts them."""

    position: int
    breaks: int


class Chunk(msgspec.Struct, frozen=True):
    """File sets of a run that follow each other, which a task judges at once.

    Attributes:
        manifests: those to judge, the last ones, after the earlier ones of the run that can affect them.
        places: of those to judge.
        shares: number of shares of the run's groups.
    """

    manifests: Work
    places: tuple[Place, ...]
    shares: int

    @property
    def own(self) -> Work:
        """The file sets to judge."""
        return self.manifests[-len(self.places) :]

    @property
    def bytes(self) -> int:
        """The number of bytes of the file sets to judge."""
        return sum(map(_bytes_of, self.own))


class ChunkRow(NamedTuple):
    """A row of JUDGED."""

    proxy_id: str
    run_id: str
    share: int
    position: int
    judged: bytes


JUDGED_NAMES: Final = list(ChunkRow._fields)


def chunks_of(runs: Mapping[RunKey, Sequence[FileSet]], cores: int) -> list[Chunk]:
    """Divide all runs into chunks. Small file sets that follow each other are one chunk, as long as there are enough for all cores."""
    number = sum(map(len, runs.values()))
    most = max(1, min(TOGETHER_MAX, number // (TASKS_PER_CORE * cores)))
    return [chunk for file_sets in runs.values() for chunk in _chunks_of_run([one.manifest for one in file_sets], most)]


def shares_of_runs(chunks: Iterable[Chunk]) -> dict[RunKey, int]:
    """Return the number of shares of each run's groups."""
    return {(chunk.own[0].proxy_id, chunk.own[0].run_id): chunk.shares for chunk in chunks}


def _chunks_of_run(run: Sequence[Manifest], most: int) -> Iterator[Chunk]:
    span_ms = max(map(warm_up_span_ms, run), default=0)
    shares = 1 + max(map(_groups_of, run), default=0) // GROUPS_OF_SHARE
    breaks, begin = Breaks(), 0
    while begin < len(run):
        end = _end_of_chunk(run, begin, most)
        places = tuple(Place(at, breaks.before(run[at])) for at in range(begin, end))
        yield Chunk((*work_of(run, begin, span_ms), *run[begin + 1 : end]), places, shares)
        begin = end


def _end_of_chunk(run: Sequence[Manifest], begin: int, most: int) -> int:
    decisions = size = 0
    for at in range(begin, min(begin + most, len(run))):
        decisions += run[at].last_seq - run[at].first_seq + 1
        size += _bytes_of(run[at])
        if at > begin and (decisions > DECISIONS_MAX or size > CHUNK_BYTES_MAX):
            return at
    return min(begin + most, len(run))


def _bytes_of(manifest: Manifest) -> int:
    return sum(entry.bytes for entry in manifest.files)


def _groups_of(manifest: Manifest) -> int:
    return sum(entry.rows for entry in manifest.files if entry.table == "dim_group")


def judged_chunks(spark: Any, directory: Path, chunks: Sequence[Chunk]) -> Any:
    """Return a frame of JUDGED. Every machine of the session can read the directory under the same path.

    The largest chunks come first, to balance the load. A worker waits for the driver between two tasks, a tenth of the time of a small file
    set. A task therefore gets several chunks when there are many more than cores. It gets at most a few, since the cluster may still grow.
    """
    in_order = sorted(chunks, key=lambda chunk: chunk.bytes, reverse=True)
    count = tasks_for(len(in_order), parallelism_of(spark))
    return work_in_tasks(spark, [packed(in_order[task::count]) for task in range(count)], _judging(str(directory.resolve())), JUDGED)


def tasks_for(chunks: int, cores: int) -> int:
    """Return the number of tasks for `chunks` chunks: a multiple of `cores`, at least two per core, so that cores end together."""
    count = max(TASKS_PER_CORE * cores, -(-chunks // CHUNKS_MAX))
    return max(1, min(chunks, -(-count // cores) * cores))


def _judging(directory: str) -> Callable[[Iterable[bytes]], Iterator[pa.RecordBatch]]:
    def judge(shares: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        keep_memory()
        small_files = SmallFiles()
        for chunk in (chunk for share in shares for chunk in unpacked(share, list[Chunk])):
            yield batch_of(judge_chunk(chunk, [FileSet(Path(directory), one, None, small_files) for one in chunk.manifests]))
        settle()

    return judge


def judged_chunks_at(spark: Any, root: str, place: str, chunks: Sequence[Chunk], check: Check | None) -> Any:
    """Return a frame of JUDGED for a directory on any file system that Hadoop supports.

    Args:
        spark: a session of `session_of_files`.
        root: the directory, as `runs_at` returns it.
        place: the directory for messages.
        chunks: what to judge.
        check: compares the files of each file set with its manifest before it is judged; None: they are not compared.
    """

    def judge(_: int, work: bytes, files: Mapping[str, bytes]) -> Iterator[pa.RecordBatch]:
        chunk, shown = unpacked(work, Chunk), path_of_messages(place)
        if check is not None:
            for manifest in chunk.own:
                check(shown, manifest, files)
        directory, small_files = StorePath(held_directory(place, files)), SmallFiles()
        yield batch_of(judge_chunk(chunk, [FileSet(directory, manifest, None, small_files) for manifest in chunk.manifests]))

    numbered = dict(enumerate(chunks))
    works = {number: packed(chunk) for number, chunk in numbered.items()}
    return rows_at(spark, root, {number: chunk.manifests for number, chunk in numbered.items()}, works, judge, JUDGED)


def judge_works(works: Sequence[Work], rows_of: Callable[[Sequence[Chunk]], Any]) -> list[tuple[Manifest, FileSetVerdict]]:
    """Judge some file sets, each by itself; return the verdict of each.

    Args:
        works: each file set, after the earlier ones of its run that can affect it.
        rows_of: returns the frame of JUDGED of chunks.

    Raises:
        IncompleteError: none of its files arrived.
    """
    chunks = [Chunk(work, (Place(position, 0),), 1) for position, work in enumerate(works)]
    rows = rows_of(chunks).select("position", "judged").collect() if works else []
    found = {row["position"]: unpacked(row["judged"], list[JudgedFileSet])[0].verdict for row in rows}
    for position, work in enumerate(works):
        if position not in found:
            remedy = "run `sluice meter verify-manifests` on the source directory"
            raise IncompleteError(f"{work[-1].file_set}: none of its files arrived; {remedy}")
    return [(work[-1], found[position]) for position, work in enumerate(works)]


def judge_chunk(chunk: Chunk, file_sets: Sequence[FileSet]) -> Iterator[ChunkRow]:
    """Judge a chunk; yield a row of JUDGED for each share of its groups.

    Args:
        chunk: the chunk.
        file_sets: those of its manifests.
    """
    shares: dict[int, list[JudgedFileSet]] = {}
    judged = judge_run(file_sets, len(file_sets) - len(chunk.places))
    for place, (file_set, verdict) in zip(chunk.places, judged, strict=True):
        whole = JudgedFileSet(place.position, place.breaks, brief(file_set.manifest), verdict)
        for share, part in shares_of(whole, chunk.shares):
            shares.setdefault(share, []).append(part)
    first = chunk.own[0]
    for share, parts in shares.items():
        yield ChunkRow(first.proxy_id, first.run_id, share, chunk.places[0].position, packed(parts))


def batch_of(rows: Iterable[ChunkRow]) -> pa.RecordBatch:
    """Return rows of JUDGED."""
    types = (pa.string(), pa.string(), pa.int32(), pa.int32(), pa.binary())
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    arrays = [pa.array(column, its) for column, its in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=JUDGED_NAMES)
