"""The proxies of a run: one Sluice, or the members of a fleet, which share the budgets through a folder."""

import json
import secrets
import time
from pathlib import Path
from typing import Final, NamedTuple

from proxy.demo.children import START_SECONDS, DemoError, ProxyChild
from proxy.demo.judgement.watcher import ask

METERING: Final = "metering"
"""Folder of the metering files, inside the folder of a run."""
WORKERS: Final = 2
"""Number of workers of a single proxy; each member of a fleet has one."""
POLL_S: Final = 0.1


class FleetSeen(NamedTuple):
    """What the members of a fleet say about it.

    Attributes:
        heard: number of members that each member hears.
        lags_ms: lag of the bus at each member that is not cut off.
    """

    heard: tuple[int, ...]
    lags_ms: tuple[float, ...]

    @property
    def is_whole(self) -> bool:
        """Whether each member hears all, and its own messages, too."""
        return set(self.heard) == {len(self.heard)} == {len(self.lags_ms)}


def arguments_of(folder: Path, number: int, count: int, *, paced: bool) -> list[str]:
    """Return the arguments of `sluice run` for one of `count` proxies, and write the files that they name.

    Args:
        folder: folder of the run.
        number: number of the proxy, from 0 on.
        count: number of proxies.
        paced: whether bytes pass by a schedule; only for one proxy.
    """
    if paced:
        config = folder / "paced.toml"
        config.write_text('[quotas]\npacing = "paced"\n')
        return ["--config", str(config), "--metering", str(folder / METERING)]
    if count == 1:
        return ["--metering", str(folder / METERING), "--workers", str(WORKERS)]
    member, bus, secret = f"proxy-{number + 1}", folder / "bus", folder / "fleet.secret"
    if number == 0:
        bus.mkdir(mode=0o700)
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
    config = folder / f"{member}.toml"
    config.write_text(
        f'[fleet]\nname = "demo"\nmember = "{member}"\nsecret_file = "{secret}"\ndirectory = "{bus}"\n'
        f'[metering]\ndir = "{folder / METERING}"\nproxy_id = "{member}"\n'
    )
    return ["--config", str(config)]


def wait_for_fleet(proxies: list[ProxyChild]) -> None:
    """Wait until each member of the fleet hears all.

    Raises:
        DemoError: a member has ended, or does not hear the others within 20 s.
    """
    end = time.monotonic() + START_SECONDS
    while not fleet_of(proxies).is_whole:
        for proxy in proxies:
            proxy.check()
        if time.monotonic() > end:
            raise DemoError("the proxies do not hear each other")
        time.sleep(POLL_S)


def fleet_of(proxies: list[ProxyChild]) -> FleetSeen:
    """Return what the members say about the fleet.

    Raises:
        OSError: one does not respond.
    """
    pages = [json.loads(ask(proxy.admin_port, "/fleet")[1]) for proxy in proxies]
    return FleetSeen(
        heard=tuple(sum(one["is_heard"] for one in page["members"]) for page in pages),
        lags_ms=tuple(page["lag_ms"] for page in pages if page["lag_ms"] is not None and not page["is_cut_off"]),
    )
