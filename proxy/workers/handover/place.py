"""The runtime folder of a Sluice: only its user can access it, and it contains the supervisor's lock and socket."""

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
    """Return the runtime folder of a configuration: `runtime_dir`, or one derived from the user and the first listener.

    None: the first listener has port 0, so nothing distinguishes this Sluice from another one.
    """
    if config.runtime_dir is not None:
        return config.runtime_dir
    address = config.listeners[0].address
    if not address.port:
        return None
    name = f"sluice-{_UNSAFE.sub('_', address.host)}-{address.port}"
    base = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0] or os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / name if base else Path("/tmp") / f"{name}-{os.geteuid()}"  # noqa: S108 - `Place` checks owner and mode


class Place:
    """The runtime folder; it is created if it is missing.

    Attributes:
        socket_path: path of the supervisor's socket.

    Raises:
        OSError: the folder cannot be created.
        StartError: another user owns the folder, or others than the owner can access it.
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
        """Descriptor of the lock; None: this process does not hold the lock."""
        return self._lock

    def try_lock(self) -> bool:
        """Take the lock of the supervisor; False: another process holds it."""
        descriptor = os.open(self.folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, SOCKET_MODE)
        if try_lock(descriptor):
            self._lock = descriptor
            return True
        os.close(descriptor)
        return False

    def inherit_lock(self, descriptor: int) -> None:
        """Share the lock of another process by a duplicate descriptor; the lock is free when both processes have closed theirs."""
        self._lock = descriptor

    def listen(self) -> socket.socket:
        """Return a listening socket at `socket_path`; it replaces an existing one.

        Raises:
            OSError: the socket cannot be bound.
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
        """Remove the socket's path; the lock stays held."""
        self.socket_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
