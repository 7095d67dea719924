"""Names of the files of a file set: of its versions, since no file is changed in place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from pathlib import PurePosixPath
from typing import Final

_NAME: Final = re.compile(r"(?P<merged>(?P<file_set>.+?)(?:\.m\d+)?)(?:\.r(?P<version>\d+))?\.parquet")


def next_name(name: str) -> str:
    """Return the name of the next version: `X.parquet` becomes `X.r1.parquet`, then `X.r2.parquet`."""
    first, version = _parted(name)
    return f"{first}.r{version + 1}.parquet"


def earlier_names(name: str) -> list[str]:
    """Return the names of the versions of a file before this one, which had the names that were removed; `name` may be a path."""
    first, version = _parted(name)
    return [f"{first}.r{earlier}.parquet" if earlier else f"{first}.parquet" for earlier in range(version)]


def merged_name(file_set: str, parts: int) -> str:
    """Return the name of a file of a file set that was merged in an object store; a proxy and `next_name` never write one."""
    return f"{file_set}.m{parts}.parquet"


def left_files(paths: Iterable[str], file_sets: Set[str], named: Set[str]) -> list[str]:
    """Return the files that an interrupted call has left: they are of these file sets, and no manifest names them.

    Args:
        paths: paths of files.
        file_sets: file sets without a manifest of their own, and those whose manifests were read.
        named: the paths that these manifests name.
    """
    return [path for path in paths if path not in named and _file_set(PurePosixPath(path).name) in file_sets]


def _parted(name: str) -> tuple[str, int]:
    """Return the common name of a file's versions, and the number of this one."""
    found = _NAME.fullmatch(name)
    return (name, 0) if found is None else (found["merged"], int(found["version"] or 0))


def _file_set(name: str) -> str | None:
    found = _NAME.fullmatch(name)
    return None if found is None else found["file_set"]
