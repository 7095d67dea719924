"""Removes a user's name from the file sets of an object store: in a copy of the files with names, which is then uploaded."""

from __future__ import annotations

import contextlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from metering_format.places import MANIFESTS, is_inside
from proxy.metering.forget import NAMING, ForgetError, ForgetResult, earlier_names, forget_user
from proxy.metering.upload.file_sets import put_file_set
from proxy.metering.upload.store_files import StoreFiles

if TYPE_CHECKING:
    from proxy.metering.facts.names import Names
    from sluice.object_store import ObjectStore

THREADS: Final = 8


def forget_user_at(at: ObjectStore, user: str, keyed: Names | None = None) -> ForgetResult:
    """Remove a user's name from every file set of a directory in an object store.

    Args:
        at: the directory.
        user: the name of the principal, without its type.
        keyed: converts the name to the form of keyed names.

    Raises:
        ForgetError: the name is invalid, or a manifest or a file of it cannot be used. Nothing was changed.
        StoreError: the store refuses, or cannot be reached. File sets before it are done, and the call can be repeated.
        OSError: the copy cannot be written.
    """
    store = StoreFiles(at)
    with tempfile.TemporaryDirectory(prefix="sluice-forget-") as folder:
        copy = Path(folder)
        before = _copied(store, copy)
        try:
            done = forget_user(copy, user, keyed)
        except ForgetError as error:
            raise ForgetError(str(error).replace(str(copy), store.name)) from error
        for path, text in before.items():
            now = (copy / path).read_bytes()
            files = {name: (copy / name).read_bytes() for name in _naming(now)}
            if now != text:
                put_file_set(store, path, now, files)
            else:
                store.delete(earlier for name in files for earlier in earlier_names(name))  # an interrupted call leaves them
    return done


def _copied(store: StoreFiles, to: Path) -> dict[str, bytes]:
    """Copy all manifests and the files with names; return the manifests by path.

    Raises:
        ForgetError: there is no manifest, or a file that one lists is missing.
    """
    paths = [path for path in store.below(MANIFESTS) if path.endswith(".json")]
    if not paths:
        raise ForgetError(f"{store.name}: not a metering directory; name a directory that a proxy uploads to")
    with ThreadPoolExecutor(THREADS) as threads:
        manifests = {path: text for path, text in zip(paths, threads.map(store.get, paths), strict=True) if text is not None}
        names = [name for text in manifests.values() for name in _naming(text)]
        for name, data in (*manifests.items(), *zip(names, threads.map(store.get, names), strict=True)):
            if data is None:
                raise ForgetError(f"{store.name}/{name}: is missing, and its manifest lists it; restore it")
            place = to / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return manifests


def _naming(text: bytes) -> list[str]:
    """Return the files with names of a manifest; none if it is invalid, which `forget_user` reports."""
    with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
        return [str(entry["path"]) for entry in msgspec.json.decode(text)["files"] if entry["table"] in NAMING and is_inside(entry["path"])]
    return []
