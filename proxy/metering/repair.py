"""Repairs the files of a killed proxy: converts its segments, and removes its temporary files."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from metering_format.places import SEGMENTS
from proxy.metering.conversion.convert import convert
from proxy.metering.conversion.unended import end_runs
from proxy.metering.layout import LOCK_PREFIX, check_readable, remove_half_written, remove_temporaries
from proxy.metering.locks import converting, lock_path, locked
from proxy.metering.segment import left_over, proxy_of


@dataclass(slots=True)
class Repaired:
    """The result: new manifests, empty segments, removed temporary files, running proxies, failures."""

    manifests: list[Path] = field(default_factory=list)
    empty: int = 0
    temporaries: int = 0
    running: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def repair(directory: Path) -> Repaired:
    """Convert the segments of proxies that do not run.

    Raises:
        OSError: a directory cannot be read, and nothing was done; or the disk failed, and the remaining segments stay.
    """
    check_readable(directory)
    done = Repaired()
    with contextlib.ExitStack() as locks:
        running: set[str] = set()
        for proxy_id in sorted(_proxies(directory)):
            if locks.enter_context(locked(lock_path(directory, proxy_id))):
                locks.enter_context(converting(directory, proxy_id))
            else:
                running.add(proxy_id)
                done.running.append(proxy_id)
        for file_set in left_over(directory):
            proxy_id_of_file_set = proxy_of(directory / SEGMENTS / file_set)
            if (proxy_id_of_file_set is None and running) or proxy_id_of_file_set in running:
                continue
            _convert(directory, file_set, done)
        for file_set in end_runs(directory, lambda proxy_id: proxy_id not in running):
            _convert(directory, file_set, done)
        for proxy_id in sorted(_all_proxies(directory) - running):
            done.temporaries += remove_temporaries(directory, proxy_id)
        if not running:  # temporary files in the segments folder do not name their proxy
            done.temporaries += remove_half_written(directory)
    return done


def _convert(directory: Path, file_set: str, done: Repaired) -> None:
    try:
        path = convert(directory, file_set)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - an unreadable segment must not prevent the conversion of the others
        done.problems.append(f"{directory / SEGMENTS / file_set}: {type(error).__name__}: {error}; it stays as it is")
        return
    if path is None:
        done.empty += 1
    else:
        done.manifests.append(path)


def _all_proxies(directory: Path) -> set[str]:
    return {path.name.removeprefix("proxy=") for path in directory.glob("*/schema=*/proxy=*")} | _proxies(directory)


def _proxies(directory: Path) -> set[str]:
    owners = {proxy_of(directory / SEGMENTS / file_set) for file_set in left_over(directory)}
    locks = {path.name.removeprefix(LOCK_PREFIX) for path in (directory / SEGMENTS).glob(f"{LOCK_PREFIX}*")}
    return {owner for owner in owners if owner is not None} | locks
