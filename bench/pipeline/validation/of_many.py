"""`sluice meter validate` on many small file sets of many proxies, by both engines, as commands: does the time grow with their number only?

The first proxy's file sets are written by the proxy's own writer, and then again without compression. Those of the others are copies with
another name in them, since it takes longer to write 100,000 file sets than to validate them.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq

from bench.metering.trace import PROXY_ID, Shape, decide, write
from bench.pipeline.measured_command import measured_command
from metering_format.manifest import Manifest, manifest_text
from pipeline.manifest import find_manifests

FILE_SETS_EACH = 1_000
"""Number of file sets of a proxy."""
OF_PROXY = Shape(FILE_SETS_EACH * 50, 6, seconds=FILE_SETS_EACH * 60, file_set_seconds=60)
ENGINES = ("local", "spark")


class Arm(NamedTuple):
    """One command.

    Attributes:
        cpu_seconds: processor time, with the JVM and the tasks.
        own_cpu_seconds: of the command's process alone: on Spark the driver without its JVM.
        mib_max, jvm_mib_max: the largest memory of the process, and of its JVM; 0: it has none.
    """

    engine: str
    file_sets: int
    seconds: float
    cpu_seconds: float
    own_cpu_seconds: float
    mib_max: int
    jvm_mib_max: int

    def line(self) -> str:
        """Return the row of the table."""
        each_ms = self.own_cpu_seconds * 1_000 / self.file_sets
        times = f"{self.seconds:.1f} | {self.cpu_seconds:.1f} | {self.own_cpu_seconds:.1f} | {each_ms:.2f}"
        jvm = f"{self.jvm_mib_max:,}" if self.jvm_mib_max else ""
        return f"| {self.engine} | {self.file_sets:,} | {times} | {self.mib_max:,} | {jvm} |"


HEADER = (
    "| engine | file sets | s | s of CPU | of the command's process alone | of this ms for each file set | MiB at most | of the JVM |",
    "|---|---|---|---|---|---|---|---|",
)


def measured_many(folder: Path, file_sets: int, only: str | None = None) -> Iterator[Arm]:
    """Write this many file sets, a multiple of a thousand, and validate them.

    Args:
        folder: for the file sets, which are used again.
        file_sets: their number.
        only: only this engine.

    Raises:
        RuntimeError: the verdict is not clean, or differs between the engines.
    """
    directory = _directory(folder, max(1, file_sets // FILE_SETS_EACH))
    verdicts = []
    for engine in ENGINES:
        if only in (None, engine):
            command = ["meter", "validate", "--engine", engine, "--in", str(directory), "--format", "json"]
            done = measured_command(command, folder / "validate.json")
            verdicts.append(json.loads(done.output))
            number = len(verdicts[-1]["manifests"])
            yield Arm(engine, number, done.seconds, done.cpu_seconds, done.own_cpu_seconds, done.mib_max, done.jvm_mib_max)
    for verdict in verdicts:
        if verdict != verdicts[0] or verdict["verdict"] != "exact" or verdict["incomplete"]:
            raise RuntimeError(f"the verdict is not clean: {_brief(verdicts)}")


def _brief(verdicts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in verdict.items() if name != "manifests"} for verdict in verdicts]


def _directory(folder: Path, proxies: int) -> Path:
    directory = folder / f"many-{proxies}"
    if directory.exists():
        return directory
    first = folder / "many-1"
    if not first.exists():
        unfinished = folder / "unfinished"
        write(unfinished, OF_PROXY, decide(OF_PROXY))
        for manifest in find_manifests(unfinished):
            _put(unfinished, manifest, [_uncompressed(unfinished / one.path) for one in manifest.files])
        unfinished.rename(first)
    if proxies > 1:
        unfinished = folder / "unfinished-many"
        manifests = find_manifests(first)
        contents = [[(first / one.path).read_bytes() for one in manifest.files] for manifest in manifests]
        for number in range(proxies):
            for manifest, files in zip(manifests, contents, strict=True):
                _put(unfinished, *_of_proxy(manifest, files, f"{number:0{len(PROXY_ID)}d}"))
        unfinished.rename(directory)
    return directory


def _uncompressed(path: Path) -> bytes:
    data = io.BytesIO()
    pq.write_table(pq.read_table(path, partitioning=None), data, compression="none")
    return data.getvalue()


def _of_proxy(manifest: Manifest, files: Sequence[bytes], proxy_id: str) -> tuple[Manifest, list[bytes]]:
    """Return the manifest of another proxy, whose name is as long, and its files."""
    places = [one.path.replace(f"proxy={PROXY_ID}/", f"proxy={proxy_id}/") for one in manifest.files]
    entries = [msgspec.structs.replace(one, path=place) for one, place in zip(manifest.files, places, strict=True)]
    contents = [data.replace(PROXY_ID.encode(), proxy_id.encode()) for data in files]
    return msgspec.structs.replace(manifest, proxy_id=proxy_id, files=tuple(entries)), contents


def _put(directory: Path, manifest: Manifest, contents: Sequence[bytes]) -> None:
    """Write the files of a file set, and its manifest."""
    entries = []
    for entry, data in zip(manifest.files, contents, strict=True):
        _write(directory / entry.path, data)
        entries.append(msgspec.structs.replace(entry, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
    samples = next(Path(one.path) for one in entries if one.table == "samples")
    path = directory / "manifests" / samples.relative_to("samples").with_suffix(".json")
    _write(path, manifest_text(msgspec.structs.replace(manifest, files=tuple(entries))))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
