"""Verdicts of file sets in a temporary file, which are read one at a time, run by run: those of a long history need not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

import msgspec

from metering_format.manifest import Manifest
from pipeline.manifest import RunKey, brief
from pipeline.stream.history import Position
from pipeline.stream.judged import Judged
from pipeline.validation.file_set_verdict import FileSetVerdict


@dataclass(slots=True)
class _Place:
    """The verdict of a file set in the file.

    Attributes:
        manifest: without its files and totals.
        first, length: its bytes.
        is_unjudged: whether it has decisions that could not be judged.
    """

    manifest: Manifest
    first: int
    length: int
    is_unjudged: bool


class SpooledVerdicts:
    """The verdicts of file sets, by run. The file ends with the block."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="sluice-verdicts-")  # noqa: SIM115 - this class is the block
        self._end = 0
        self._runs: dict[RunKey, dict[Position, _Place]] = {}

    def __enter__(self) -> SpooledVerdicts:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, manifest: Manifest) -> bool:
        """Whether there is a verdict of a file set."""
        return (manifest.first_seq, manifest.part) in self._runs.get((manifest.proxy_id, manifest.run_id), ())

    def add(self, judged: Iterable[Judged]) -> None:
        """Add verdicts."""
        for one in judged:
            run = self._runs.setdefault((one.manifest.proxy_id, one.manifest.run_id), {})
            like = next(iter(run.values())).manifest if run else None
            place = _Place(brief(one.manifest, like), 0, 0, is_unjudged=False)
            run[one.manifest.first_seq, one.manifest.part] = place
            self._write(place, one.verdict)

    def replace(self, manifest: Manifest, verdict: FileSetVerdict) -> None:
        """Replace the verdict of a file set."""
        self._write(self._place_of(manifest), verdict)

    def is_unjudged(self, manifest: Manifest) -> bool:
        """Whether a file set has decisions that could not be judged."""
        return self._place_of(manifest).is_unjudged

    def manifests(self) -> dict[RunKey, list[Manifest]]:
        """Return the file sets of each run in decision order, without files and totals."""
        return {key: [run[position].manifest for position in sorted(run)] for key, run in self._runs.items()}

    def runs(self) -> Iterator[tuple[RunKey, Iterator[tuple[Manifest, FileSetVerdict]]]]:
        """Yield each run with its file sets and their verdicts in decision order, which are read one at a time."""
        for key, run in self._runs.items():
            yield key, self._read_run(run)

    def _read_run(self, run: Mapping[Position, _Place]) -> Iterator[tuple[Manifest, FileSetVerdict]]:
        for position in sorted(run):
            yield run[position].manifest, self._read(run[position])

    def _place_of(self, manifest: Manifest) -> _Place:
        return self._runs[manifest.proxy_id, manifest.run_id][manifest.first_seq, manifest.part]

    def _write(self, place: _Place, verdict: FileSetVerdict) -> None:
        data = msgspec.json.encode(verdict)
        self._file.seek(self._end)
        self._file.write(data)
        place.first, place.length, place.is_unjudged = self._end, len(data), verdict.unjudged > 0
        self._end += len(data)

    def _read(self, place: _Place) -> FileSetVerdict:
        self._file.seek(place.first)
        return msgspec.json.decode(self._file.read(place.length), type=FileSetVerdict)
