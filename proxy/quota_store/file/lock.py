"""A lock that lets one process at a time alter a file. The lock file stays, and has the digest of the content last written by a Sluice."""

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
    """Return the path of the lock file for the file at `path`; symlinks to one file have the same lock file."""
    target = path.resolve()
    return target.with_name(f"{target.name}.lock")


def last_commit(path: Path) -> bytes | None:
    """Return the digest of the content that a Sluice last wrote to the file at `path`; None: no Sluice has written it."""
    try:
        with lock_path(path).open("rb") as file:
            return file.read(DIGEST_BYTES)
    except OSError:
        return None


class FileLock:
    """The lock of the file at `path`. The constructor takes it, and blocks the caller's thread while it waits.

    Raises:
        StoreUnavailable: another process holds the lock for 5 s, or the lock file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path = lock_path(path)
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            line = f"{self._path}: cannot be created: {error.strerror}; nothing was changed, give Sluice write access to the directory"
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
        raise StoreUnavailable(f"{self._path}: another process has locked it; nothing was changed, try again")

    def commit(self, digest: bytes) -> None:
        """Write the digest of the content that the file is about to get."""
        os.pwrite(self._descriptor, digest, 0)

    def release(self) -> None:
        """Release the lock. The lock file stays, since two processes can lock a file that is removed and created again."""
        os.close(self._descriptor)
