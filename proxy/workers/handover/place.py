"""Where the supervisors of one Sluice meet: a folder of their user alone, with a lock and a socket."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from pathlib import Path
from typing import Final

from proxy.base.errors import StartError
from proxy.base.files import try_lock
from proxy.config.model import Config

FOLDER_MODE: Final = 0o700
SOCKET_MODE: Final = 0o600
SOCKET_NAME: Final = "supervisor.sock"
LOCK_NAME: Final = "supervisor.lock"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]")


def runtime_dir_of(config: Config) -> Path | None:
    """Return the folder of a configuration: its own, or one that follows from the user and the first listener.

    None: the first listener takes any free port, so that nothing tells this Sluice from another one.
    """
    if config.runtime_dir is not None:
        return config.runtime_dir
    address = config.listeners[0].address
    if not address.port:
        return None
    name = f"sluice-{_UNSAFE.sub('_', address.host)}-{address.port}"
    base = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0] or os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / name if base else Path("/tmp") / f"{name}-{os.geteuid()}"  # noqa: S108 - its owner and mode are checked


class Place:
    """The folder, made where it is missing.

    Attributes:
        socket_path: where supervisors meet.

    Raises:
        OSError: it cannot be made.
        StartError: it is open to others, or theirs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=FOLDER_MODE)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise StartError(
                f"runtime_dir: {folder} has to be a folder of this user alone (mode 0700); name another one, or run chmod 0700 on it"
            )
        self.socket_path = folder / SOCKET_NAME
        self._lock: int | None = None

    @property
    def lock(self) -> int | None:
        """The descriptor of the lock; None: another process holds it."""
        return self._lock

    def try_lock(self) -> bool:
        """Be the supervisor here; False: another process is."""
        descriptor = os.open(self.folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, SOCKET_MODE)
        if try_lock(descriptor):
            self._lock = descriptor
            return True
        os.close(descriptor)
        return False

    def inherit_lock(self, descriptor: int) -> None:
        """Share the lock with the process that holds it: it is free when both have let go of it."""
        self._lock = descriptor

    def listen(self) -> socket.socket:
        """Return a socket that listens here, in the place of any other.

        Raises:
            OSError: it cannot be bound.
        """
        beside = self.socket_path.with_suffix(".new")
        beside.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.bind(str(beside))
            beside.chmod(SOCKET_MODE)
            sock.listen()
            sock.setblocking(False)
            beside.rename(self.socket_path)
        except OSError:
            sock.close()
            raise
        return sock

    def remove_socket(self) -> None:
        """Nobody is to be met here any more; the lock is still this process's."""
        self.socket_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
