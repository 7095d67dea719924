"""A lock by which one process alters a file at a time. The lock file stays, and names the content that a Sluice wrote last."""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from proxy.quota_store.store import StoreUnavailable

LOCK_TRIES: Final = 1_000
LOCK_TRY_S: Final = 0.005
DIGEST_BYTES: Final = 32


def lock_path(path: Path) -> Path:
    """Return the lock file of the file at `path`; all names of one file have the same."""
    target = path.resolve()
    return target.with_name(f"{target.name}.lock")


def last_commit(path: Path) -> bytes | None:
    """Return the digest of what a Sluice last wrote to the file at `path`, whole; None where none ever did."""
    try:
        with lock_path(path).open("rb") as file:
            return file.read(DIGEST_BYTES)
    except OSError:
        return None


class FileLock:
    """Takes the lock of the file at `path` when it is made; waits for it in the thread of the caller.

    Raises:
        StoreUnavailable: another process holds it for 5 s, or no lock file can be made there.
    """

    def __init__(self, path: Path) -> None:
        self._path = lock_path(path)
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            line = f"{self._path}: cannot be made: {error.strerror}; let Sluice write in that directory, nothing was changed"
            raise StoreUnavailable(line) from None
        try:
            self._wait()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _wait(self) -> None:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOCK_TRY_S)
            else:
                return
        raise StoreUnavailable(f"{self._path}: another process holds it; try again, nothing was changed")

    def commit(self, digest: bytes) -> None:
        """Note what the file is about to hold."""
        os.pwrite(self._descriptor, digest, 0)

    def release(self) -> None:
        """Let others alter the file. The lock file stays: one that is removed can be locked twice."""
        os.close(self._descriptor)
