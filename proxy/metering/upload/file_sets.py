"""Uploads file sets: first the files, each compared with its digest, and the manifest last, so that no reader sees a part of a set."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from metering_format.places import KIND, MANIFESTS, REMOVED, ledger_name
from proxy.base.clock import now_ms
from proxy.base.files import TEMPORARY
from proxy.metering.file_names import earlier_names
from proxy.metering.upload.state import UploadState, lost_path, read_state, sha256_of, write_state
from proxy.metering.upload.store_files import StoreFiles

THREADS: Final = 4
READS_MAX: Final = 10
"""Maximum number of reads of a manifest while files that it names are missing."""
SAVE_MS: Final = 1_000

Uploaded = Callable[[int], None]
"""Called with the number of bytes of each uploaded file set."""


class UnreadableError(Exception):
    """A local file set cannot be uploaded; the text is one line with the remedy."""


class Upload:
    """One pass over the file sets of a proxy.

    Args:
        directory: metering directory.
        proxy_id: proxy with the file sets to upload.
        store: directory in an object store, which gets the same paths.
        on_uploaded: called for each file set.
    """

    def __init__(self, directory: Path, proxy_id: str, store: StoreFiles, on_uploaded: Uploaded) -> None:
        self._directory, self._proxy_id, self._store, self._on_uploaded = directory, proxy_id, store, on_uploaded
        self._state = read_state(directory, proxy_id, store.name)
        self._saved_ms = now_ms()

    def run(self) -> list[str]:
        """Upload all file sets that the store does not have as they are now, the oldest first.

        Returns:
            One line for each file set that cannot be uploaded.

        Raises:
            StoreError: the store refuses, or cannot be reached. File sets before it are uploaded.
            OSError: a local file cannot be read or written.
        """
        problems = []
        here = dict(self._manifests())
        try:
            for path, text in here.items():
                if self._state.manifests.get(path) == sha256_of(text):
                    continue
                try:
                    self._upload(path)
                except UnreadableError as error:
                    problems.append(str(error))
                if now_ms() - self._saved_ms > SAVE_MS:
                    self._save(here)
            self._upload_lost()
        finally:
            self._save(here)
        return problems

    @property
    def waiting(self) -> int:
        """Number of file sets that the store does not have as they are now."""
        return sum(self._state.manifests.get(path) != sha256_of(text) for path, text in self._manifests())

    def _manifests(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and text of each manifest of the proxy, the oldest first."""
        for path in sorted((self._directory / MANIFESTS).glob(f"schema=*/proxy={self._proxy_id}/**/*.json"), key=lambda path: path.name):
            if not path.name.startswith(TEMPORARY) and (text := self._read(str(path.relative_to(self._directory)))) is not None:
                yield str(path.relative_to(self._directory)), text

    def _save(self, here: dict[str, bytes]) -> None:
        """Write the state, without file sets that retention has removed."""
        manifests = {path: sha256 for path, sha256 in self._state.manifests.items() if path in here}
        self._state = UploadState(self._state.url, manifests, self._state.lost)
        write_state(self._directory, self._proxy_id, self._state)
        self._saved_ms = now_ms()

    def _upload(self, path: str) -> None:
        """Upload one file set; nothing if retention has removed it, or if the store has merged it with others."""
        found = self._contents(path)
        if found is None:
            return
        text, files = found
        before = self._store.get(path)
        if before is None or file_sets_in(path, before) <= file_sets_in(path, text):
            put_file_set(self._store, path, text, files)
            replaced = set() if before is None else _files(before) - files.keys()
            self._store.delete(replaced.union(*map(earlier_names, files)))  # also those that an interrupted pass has left
            self._remove_parts(path, text)
            self._on_uploaded(len(text) + sum(map(len, files.values())))
        # else the store has merged it with file sets that this one would replace: `sluice meter forget URL` changes those
        self._state.manifests[path] = sha256_of(text)

    def _remove_parts(self, path: str, text: bytes) -> None:
        """Remove the file sets that were merged to this one, which the store may have."""
        for part in msgspec.json.decode(text).get("merged", ())[1:]:
            merged = str(Path(path).with_name(f"{part['file_set']}.json"))
            before = self._store.get(merged)
            if before is not None:
                self._store.delete((*_entries(merged, before), merged))

    def _contents(self, path: str) -> tuple[bytes, dict[str, bytes]] | None:
        """Return the manifest and the files that it names; None: retention has removed the file set.

        Raises:
            UnreadableError: the manifest is invalid, or a file differs from it.
        """
        for _ in range(READS_MAX):
            text = self._read(path)
            if text is None:
                return None
            entries = _entries(path, text)
            files = {name: data for name in entries if (data := self._read(name)) is not None}
            if len(files) == len(entries):
                for name, data in files.items():
                    if sha256_of(data) != entries[name]:
                        raise UnreadableError(f"{name}: its SHA-256 is not the one in {path}, so its file set is not uploaded; restore it")
                return text, files
        raise UnreadableError(f"{path}: names files that are not there, so its file set is not uploaded; restore them")

    def _upload_lost(self) -> None:
        """Upload the ledger of file sets that retention removed before they were uploaded, so that readers know of the loss."""
        text = self._read(str(lost_path(self._directory, self._proxy_id).relative_to(self._directory)))
        if text is not None and sha256_of(text) != self._state.lost:
            self._store.put(f"{REMOVED}/{ledger_name(self._proxy_id)}", text)
            self._state.lost = sha256_of(text)

    def _read(self, path: str) -> bytes | None:
        try:
            return (self._directory / path).read_bytes()
        except FileNotFoundError:
            return None


def put_file_set(store: StoreFiles, path: str, text: bytes, files: Mapping[str, bytes]) -> None:
    """Write the files of a file set, then its manifest.

    Args:
        store: the directory.
        path: path of the manifest.
        text: content of the manifest.
        files: the files to write, by path.

    Raises:
        StoreError: the store refuses, or cannot be reached. This can be repeated.
    """
    with ThreadPoolExecutor(THREADS) as threads:
        for done in [threads.submit(store.put, name, data) for name, data in files.items()]:
            done.result()
    store.put(path, text)


def file_sets_in(path: str, text: bytes) -> set[str]:
    """Return the names of the file sets that a manifest has, that of its path among them."""
    with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
        return {Path(path).stem, *(str(part["file_set"]) for part in msgspec.json.decode(text).get("merged", ()))}
    return {Path(path).stem}


def _files(text: bytes) -> set[str]:
    """Return the files that a manifest in the store names; none if it is invalid."""
    with contextlib.suppress(UnreadableError):
        return set(_entries("", text))
    return set()


def _entries(path: str, text: bytes) -> dict[str, str]:
    """Return the SHA-256 of each file that a manifest names.

    Raises:
        UnreadableError: the text is no manifest.
    """
    try:
        fields: Any = msgspec.json.decode(text)
        if fields["kind"] == KIND:
            return {str(entry["path"]): str(entry["sha256"]) for entry in fields["files"]}
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    raise UnreadableError(f"{path}: not a manifest, so its file set is not uploaded; restore it")
