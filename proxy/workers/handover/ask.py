"""Asks a supervisor that runs to let the new version take its place: what `sluice upgrade` does."""

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

ENDED_S: Final = 120.0
"""Longer than an upgrade may take."""


def folder_of(config: Config | None, folder: Path | None) -> Path:
    """Return where the Sluice of a configuration is to be met.

    Raises:
        StartError: nothing tells.
    """
    found = folder or (None if config is None else runtime_dir_of(config))
    if found is None:
        raise StartError("nothing says where the Sluice that runs is met: name its file with --config, or its folder with --runtime-dir")
    return found


def ask_upgrade(folder: Path) -> UpgradeEnded:
    """Have the Sluice that is met in a folder replaced; wait until it is, or is not.

    Raises:
        StartError: nobody is there.
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
        message, _ = await channel.receive(ENDED_S)
    except ChannelClosed as error:
        return UpgradeEnded(None, f"no answer: {error}")
    finally:
        channel.close()
    return message if isinstance(message, UpgradeEnded) else UpgradeEnded(None, "no answer")
