"""Removes a user's name from the file sets of an object store: in a copy of the files with names, which is then uploaded."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from metering_format.places import is_inside
from proxy.metering.file_names import left_files
from proxy.metering.forget import NAMING, ForgetError, ForgetResult, forget_user
from proxy.metering.upload.copies import all_files, by_hour, copy_files, hour_of, manifests_among
from proxy.metering.upload.file_sets import file_sets_in, put_file_set
from proxy.metering.upload.store_files import StoreFiles

if TYPE_CHECKING:
    from proxy.metering.facts.names import Names
    from sluice.object_store import ObjectStore


def forget_user_at(at: ObjectStore, user: str, keyed: Names | None = None) -> ForgetResult:
    """Remove a user's name from every file set of a directory in an object store.

    Args:
        at: the directory.
        user: the name of the principal, without its type.
        keyed: converts the name to the form of keyed names.

    Raises:
        ForgetError: the name is invalid, or a manifest or a file of it cannot be used. Nothing was changed.
        StoreError: there is no manifest; or the store refuses, or cannot be reached. File sets before it are done, and the call can be
            repeated.
        OSError: the copy cannot be written.
    """
    store = StoreFiles(at)
    with tempfile.TemporaryDirectory(prefix="sluice-forget-") as folder:
        copy = Path(folder)
        paths = all_files(store)
        before = _copied(store, manifests_among(paths), copy)
        try:
            done = forget_user(copy, user, keyed)
        except ForgetError as error:
            raise ForgetError(str(error).replace(str(copy), store.name)) from error
        naming = by_hour(path for path in paths if path.partition("/")[0] in NAMING)
        for path, text in before.items():
            now = (copy / path).read_bytes()
            files = {name: (copy / name).read_bytes() for name in _naming(now)}
            if now != text:
                put_file_set(store, path, now, files)
            place = PurePosixPath(path)
            is_here = {name: str(place.with_name(f"{name}.json")) in before for name in file_sets_in(path, now)}
            file_sets = {name for name, has_manifest in is_here.items() if name == place.stem or not has_manifest}
            store.delete(left_files(naming[hour_of(path)], file_sets, set(files)))  # of an interrupted call, also of `compact`
    return done


def _copied(store: StoreFiles, paths: Sequence[str], to: Path) -> dict[str, bytes]:
    """Copy these manifests and the files with names; return the manifests by path.

    Raises:
        ForgetError: a file that a manifest lists is missing.
    """
    missing = copy_files(store, paths, to)  # changed meanwhile
    manifests = {path: (to / path).read_bytes() for path in paths if path not in missing}
    for name in copy_files(store, [name for text in manifests.values() for name in _naming(text)], to):
        raise ForgetError(f"{store.name}/{name}: is missing, and its manifest lists it; restore it")
    return manifests


def _naming(text: bytes) -> list[str]:
    """Return the files with names of a manifest; none if it is invalid, which `forget_user` reports."""
    with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
        return [str(entry["path"]) for entry in msgspec.json.decode(text)["files"] if entry["table"] in NAMING and is_inside(entry["path"])]
    return []
