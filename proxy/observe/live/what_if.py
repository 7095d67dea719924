"""What other quotas would have meant: `sluice meter whatif` as a child process, on the newest decisions of this proxy.

The child has the lowest priority, a limit of time and one of memory, and there is one at a time, so that clients do not notice it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from metering_format.manifest import Manifest
from metering_format.places import MANIFESTS
from proxy.config.model import Metering
from proxy.metering.layout import sanitized
from quota.admin.messages import EntityKey
from quota.entity import DEFAULT

SECONDS_MAX: Final = 60.0
DECISIONS_MAX: Final = 10_000_000
CHILD_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
"""Address space of the child; most of it are libraries that are only mapped."""
OUTPUT_BYTES_MAX: Final = 16 * 1024 * 1024
GROUPS_SHOWN: Final = 20
_LOWEST_PRIORITY: Final = 19
_SHOWN: Final = ("group", "quota_type", "node", "bound_today", "bound", "throttled_today", "throttled", "wait_ms_today", "wait_ms", "note")

Quotas = Mapping[EntityKey, Mapping[str, float]]


class NoWhatIfError(Exception):
    """The effect is not known; the text is one sentence that says why."""


class WhatIf:
    """Runs one what-if at a time.

    Args:
        settings: returns the settings of metering in force.
    """

    def __init__(self, settings: Callable[[], Metering]) -> None:
        self._settings = settings
        self._child: subprocess.Popen[bytes] | None = None
        self._is_running = False

    async def effect_of(self, quotas: Quotas) -> dict[str, Any]:
        """Return what all of `quotas` would have meant.

        Raises:
            NoWhatIfError: this cannot be told.
        """
        settings = self._settings()
        if settings.dir is None or not settings.is_on:
            raise NoWhatIfError("this proxy writes no metering files (metering.dir), so no earlier request is known")
        if settings.names != "plain":
            raise NoWhatIfError(f'metering writes no plain names (metering.names = "{settings.names}"), so quotas cannot be matched')
        if self._is_running:
            raise NoWhatIfError("another what-if is running; ask again in a minute")
        self._is_running = True
        try:
            return await asyncio.to_thread(self._computed, settings.dir, settings.proxy_id or socket.gethostname(), quotas)
        finally:
            self._is_running = False

    def close(self) -> None:
        """End the child, if there is one."""
        child = self._child
        if child is not None:
            child.kill()

    def _computed(self, directory: Path, proxy_id: str, quotas: Quotas) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="sluice-what-if-") as folder:
            chosen = Path(folder, "metering")
            found = _link_newest(directory, sanitized(proxy_id), chosen)
            file = Path(folder, "quotas.toml")
            file.write_text("\n".join(_tables(quotas)), "utf-8", "replace")
            page = json.loads(self._run(["--in", str(chosen), "--quotas", str(file), "--mode", "regroup", "--format", "json"]))
        (scenario,) = page["scenarios"] or [{"groups": []}]
        groups = scenario["groups"]
        changed = [
            group for group in groups if (group["wait_ms"], group["throttled"]) != (group["wait_ms_today"], group["throttled_today"])
        ]
        sums = {key: scenario.get(key, 0) for key in ("throttled_today", "throttled", "wait_ms_today", "wait_ms")}
        shown = [{key: group[key] for key in _SHOWN} for group in changed[:GROUPS_SHOWN]]
        return {**found, **sums, "means": page["means"], "group_count": len(groups), "changed_count": len(changed), "groups": shown}

    def _run(self, arguments: list[str]) -> bytes:
        """Return the output of the child.

        Raises:
            NoWhatIfError: it failed, or took too long.
        """
        command = [sys.executable, "-m", "sluice_cli", "meter", "whatif", *arguments]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)  # noqa: S603
            try:
                _restrain(child.pid)
                code = child.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                raise NoWhatIfError(f"the what-if took longer than {SECONDS_MAX:.0f} s; run `sluice meter whatif` yourself") from None
            finally:
                child.kill()
                child.wait()
                self._child = None
            if code != 0:
                raise NoWhatIfError(_last_line(_read(errors)) or f"the what-if ended with code {code}")
            return _read(output)


def _restrain(pid: int) -> None:
    """Give a child the lowest priority and a limit of memory; it may have ended already."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, _LOWEST_PRIORITY)
        resource.prlimit(pid, resource.RLIMIT_AS, (CHILD_BYTES_MAX, CHILD_BYTES_MAX))
    except ProcessLookupError:
        return


def _link_newest(directory: Path, proxy_id: str, chosen: Path) -> dict[str, Any]:
    """Link the newest file sets of this proxy and of its workers into a directory; return their decisions and times.

    Raises:
        NoWhatIfError: there are none.
    """
    decisions, first_ms, last_ms = 0, 0, 0
    for path, manifest in sorted(_manifests(directory, proxy_id), key=lambda one: -one[1].last_ts_ms):
        count = sum(of_type.decisions for of_type in manifest.counts.values())
        if decisions and decisions + count > DECISIONS_MAX:
            break
        for name in (path.relative_to(directory), *(Path(file.path) for file in manifest.files)):
            link = chosen / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to((directory / name).resolve())
        decisions += count
        first_ms, last_ms = manifest.first_ts_ms, max(last_ms, manifest.last_ts_ms)
    if not decisions:
        raise NoWhatIfError(f"{directory} has no finished metering file with decisions of this proxy yet")
    return {"decisions": decisions, "first_ts_ms": first_ms, "last_ts_ms": last_ms}


def _manifests(directory: Path, proxy_id: str) -> Iterator[tuple[Path, Manifest]]:
    """Yield the manifests of this proxy, of its workers and of its supervisors."""
    own = re.compile(rf"proxy={re.escape(proxy_id)}(-(supervisor-)?\d+)?")
    for folder in (directory / MANIFESTS).glob("schema=*/proxy=*"):
        if not own.fullmatch(folder.name):
            continue
        for path in folder.rglob("[!.]*.json"):
            try:
                yield path, msgspec.json.decode(path.read_bytes(), type=Manifest)
            except FileNotFoundError:
                continue  # retention removed it
            except (OSError, msgspec.DecodeError) as error:
                raise NoWhatIfError(f"{path} cannot be read: {error}") from None


def _tables(quotas: Quotas) -> Iterator[str]:
    """Yield the tables of a quota file. A string of JSON is one of TOML, too."""
    for entity, values in quotas.items():
        names = (f"{kind} = {json.dumps(DEFAULT if name is None else name, ensure_ascii=False)}" for kind, name in entity)
        yield "\n".join(["[[quota]]", *names, *(f"{key} = {value!r}" for key, value in values.items()), ""])


def _read(file: Any) -> bytes:
    file.seek(0)
    found: bytes = file.read(OUTPUT_BYTES_MAX)
    return found


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return "" if not lines else re.sub(r"^(sluice: )+", "", lines[-1])[:300]
