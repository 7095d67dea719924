"""Network namespaces with a link that can drop all packets, and mount namespaces: they simulate other machines."""

import contextlib
import ctypes
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

NEAR_ADDRESS, FAR_ADDRESS = "10.77.0.1", "10.77.0.2"
_CLONE_NEWNET = 0x40000000
T = TypeVar("T")


class NoNamespacesError(Exception):
    """Namespaces are not available here; the text says why."""


class Wire:
    """The namespaces `near` (the proxy and its clients) and `far` (the broker), until `close`; a context manager.

    Raises:
        NoNamespacesError: not root, or the tools or the kernel's support are missing.
    """

    def __init__(self) -> None:
        self.near, self.far = (f"sluice-{side}-{os.getpid()}" for side in ("near", "far"))
        try:
            for name in (self.near, self.far):
                _run("ip", "netns", "add", name)
                _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", self.near, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", self.far)
            for name, side, address in ((self.near, "near", NEAR_ADDRESS), (self.far, "far", FAR_ADDRESS)):
                _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", side)
                _run("ip", "-n", name, "link", "set", side, "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NoNamespacesError(f"network namespaces cannot be made here, it takes root and iproute2: {_said(error)}") from error

    def swallow(self) -> None:
        """Drop all packets from now on, in both directions, without an error."""
        for name, side in ((self.near, "near"), (self.far, "far")):
            _run("tc", "-n", name, "qdisc", "replace", "dev", side, "root", "blackhole")

    def mend(self) -> None:
        """Let packets pass again."""
        for name, side in ((self.near, "near"), (self.far, "far")):
            _run("tc", "-n", name, "qdisc", "delete", "dev", side, "root")

    def command(self, command: list[str]) -> list[str]:
        """Return a command that runs in the proxy's namespace."""
        return ["ip", "netns", "exec", self.near, *command]

    def at_far(self, make: Callable[[], T]) -> T:
        """Call a function in the broker's namespace; its sockets stay there."""
        return _inside(self.far, make)

    def at_near(self, make: Callable[[], T]) -> T:
        """Call a function in the proxy's namespace; its sockets stay there."""
        return _inside(self.near, make)

    def connect(self, port: int, host: str = "127.0.0.1") -> socket.socket:
        """Return a client connection in the proxy's namespace."""
        return self.at_near(lambda: socket.create_connection((host, port), 5))

    def close(self) -> None:
        """Remove both namespaces."""
        for name in (self.near, self.far):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _run("ip", "netns", "delete", name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def own_mounts(empty: Sequence[Path], shown: Mapping[Path, Path] | None = None) -> list[str]:
    """Return a command prefix with mounts of its own: first each folder `shown` at another place, then private empty folders.

    Args:
        empty: folders in whose place a private empty one is mounted.
        shown: further places of folders, which stay visible there; they exist.
    """
    shows = [f"mount --bind {shlex.quote(str(folder))} {shlex.quote(str(place))}" for folder, place in (shown or {}).items()]
    hides = [f"mount -t tmpfs tmpfs {shlex.quote(str(folder))}" for folder in empty]
    return ["unshare", "--mount", "sh", "-c", " && ".join([*shows, *hides, 'exec "$0" "$@"'])]


def check_own_mounts(folder: Path) -> None:
    """Check that private mounts are possible.

    Raises:
        NoNamespacesError: not root, or the tools or the kernel's support are missing.
    """
    try:
        _run(*own_mounts([folder]), "true")
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoNamespacesError(f"mount namespaces cannot be made here, it takes root and util-linux: {_said(error)}") from error


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)


def _said(error: Exception) -> str:
    return error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)


def _inside(name: str, make: Callable[[], T]) -> T:
    """Call a function in a thread that has entered a namespace."""
    results: list[T] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            with open(f"/run/netns/{name}", "rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"namespace {name} cannot be entered")
            results.append(make())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
