"""How Spark's tasks read a metering directory: in place on a path that all machines see, or through Spark's readers from a URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from metering_format.manifest import Manifest
from pipeline.errors import IncompleteError
from pipeline.manifest import check_held, check_undamaged, problems_of
from pipeline.parquet.checks import check_columns, opened
from pipeline.spark.remote import session_of_files
from pipeline.spark.validation.judging import judge_works, judged_chunks, judged_chunks_at
from pipeline.spark.validation.manifests import check_undamaged_at
from pipeline.spark.validation.partial_sums import Source, sums_of, sums_of_held
from pipeline.spark.written import url_of
from pipeline.storage.paths import AnyPath, StorePath
from pipeline.validation.file_set_verdict import FileSetVerdict
from pipeline.validation.warm_up import Work

JudgedWorks = list[tuple[Manifest, FileSetVerdict]]


class StreamSource(Protocol):
    """A metering directory."""

    @property
    def directory(self) -> AnyPath:
        """The directory for small files, and for messages."""

    def judge(self, works: Sequence[Work], *, every_byte: bool) -> JudgedWorks:
        """Judge file sets; with `every_byte` first compare the files of each with its manifest.

        Raises:
            IncompleteError: a file is missing or has changed.
            BadInputError: a file was written by another program.
        """

    def check_undamaged(self, manifests: Sequence[Manifest]) -> None:
        """Compare files that contain divergences with their manifests.

        Raises:
            IncompleteError: a file has changed.
        """

    def url(self, path: str) -> str:
        """Return the URL of a file for Spark's readers."""

    def sums(self, samples: Sequence[Source], window_ms: int) -> Any:
        """Return the sums of files of samples, as `sums_of`; the paths are below the directory."""


class LocalSource:
    """A `StreamSource` on a path that all machines see."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self._spark, self.directory = spark, directory

    def judge(self, works: Sequence[Work], *, every_byte: bool) -> JudgedWorks:
        """Judge in tasks; this machine compares the files."""
        if every_byte:
            problems = [problem for work in works for problem in problems_of(self.directory, work[-1])]
            if problems:
                raise IncompleteError(problems[0])
            check_columns(self.directory, (work[-1] for work in works))
        return judge_works(works, lambda chunks: judged_chunks(self._spark, self.directory, chunks))

    def check_undamaged(self, manifests: Sequence[Manifest]) -> None:
        """Compare files here."""
        check_undamaged(self.directory, manifests)

    def url(self, path: str) -> str:
        """Return the URL of a local file."""
        return url_of(self.directory / path)

    def sums(self, samples: Sequence[Source], window_ms: int) -> Any:
        """Return sums; tasks read the files in place."""
        return sums_of(self._spark, [one._replace(path=str(self.directory / one.path)) for one in samples], window_ms)


class RemoteSource:
    """A `StreamSource` at a URL that Hadoop knows."""

    def __init__(self, spark: Any, directory: StorePath) -> None:
        self._spark, self.directory = spark, directory

    def judge(self, works: Sequence[Work], *, every_byte: bool) -> JudgedWorks:
        """Judge and compare in tasks, which get the files by a shuffle."""
        check, root, place = _check_held if every_byte else None, self.directory.location, str(self.directory)
        with session_of_files(self._spark, (manifest for work in works for manifest in work)) as own:
            return judge_works(works, lambda chunks: judged_chunks_at(own, root, place, chunks, check))

    def check_undamaged(self, manifests: Sequence[Manifest]) -> None:
        """Compare files in tasks."""
        if manifests:
            check_undamaged_at(self._spark, str(self.directory), self.directory.location, manifests)

    def url(self, path: str) -> str:
        """Return the URL of a file."""
        return (self.directory / path).location

    def sums(self, samples: Sequence[Source], window_ms: int) -> Any:
        """Return sums; tasks get the files from Spark's reader."""
        return sums_of_held(self._spark, self.directory.location, samples, window_ms)


def source_at(spark: Any, directory: AnyPath) -> StreamSource:
    """Return the source for a directory."""
    return RemoteSource(spark, directory) if isinstance(directory, StorePath) else LocalSource(spark, directory.resolve())


def _check_held(shown: AnyPath, manifest: Manifest, files: Mapping[str, bytes]) -> None:
    """Compare files that Spark has read with a manifest, and their columns with the declared ones."""
    check_held(shown, manifest, files)
    for entry in manifest.files:
        if entry.path in files:
            with opened(pa.BufferReader(files[entry.path]), manifest, entry, shown):
                pass
