"""Requests an upgrade from the running supervisor: the client side of `sluice upgrade`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from proxy.app.app import UPGRADE_REMEDY
from proxy.base.errors import StartError
from proxy.config.model import Config
from proxy.workers.handover.channel import ChannelClosed, connected
from proxy.workers.handover.messages import AskUpgrade, UpgradeEnded
from proxy.workers.handover.place import SOCKET_NAME, runtime_dir_of

UPGRADE_TIMEOUT_S: Final = 120.0
"""Time limit for the answer, longer than the time limit of an upgrade."""


def folder_of(config: Config | None, folder: Path | None) -> Path:
    """Return the runtime folder of a Sluice: `folder` if given, else that of the configuration.

    Raises:
        StartError: neither is given, or the configuration determines no folder.
    """
    found = folder or (None if config is None else runtime_dir_of(config))
    if found is None:
        raise StartError(
            "the runtime folder of the running Sluice is not known: name its configuration with --config, or the folder with --runtime-dir"
        )
    return found


def ask_upgrade(folder: Path) -> UpgradeEnded:
    """Request an upgrade from the Sluice of a runtime folder, wait for its end and return the result.

    Raises:
        StartError: no supervisor listens in the folder, another user listens there, or the socket cannot be connected to.
    """
    return asyncio.run(_ask_upgrade(folder))


async def _ask_upgrade(folder: Path) -> UpgradeEnded:
    path = folder / SOCKET_NAME
    try:
        channel = connected(path)
    except OSError as error:
        raise StartError(f"{path}: {error.strerror or error}; run sluice upgrade as the user that Sluice runs as") from None
    if channel is None:
        raise StartError(f"{path}: no Sluice with a supervisor runs there; {UPGRADE_REMEDY}")
    try:
        if channel.peer[1] != os.geteuid():
            raise StartError(f"{path}: another user listens there; run sluice upgrade as the user that Sluice runs as")
        await channel.send(AskUpgrade())
        message, _ = await channel.receive(UPGRADE_TIMEOUT_S)
    except ChannelClosed as error:
        return UpgradeEnded(None, f"no answer: {error}")
    finally:
        channel.close()
    return message if isinstance(message, UpgradeEnded) else UpgradeEnded(None, "no answer")
