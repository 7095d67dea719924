"""Tells the service manager how things stand, by the protocol of systemd's sd_notify(3); without one nothing happens."""

import contextlib
import os
import socket
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"


def notify(state: str) -> None:
    """Send a line such as `READY=1`; a manager that does not listen is passed over."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
