"""The flags of the command line, each of which overrides a key of the file."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from proxy.base.host_port import HOST_PORT_REMEDY, HOST_REMEDY
from proxy.base.units import shown
from proxy.config.problem import COMMAND_LINE, Problem
from proxy.config.sections.admin import PRINCIPAL_REMEDY, read_principal
from proxy.config.values import WORKERS_REMEDY, read_bootstrap, read_listen, read_path, read_reachable_host, read_workers


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the flags, unparsed; None and False override nothing."""

    listen: str | None = None
    upstream: str | None = None
    advertise: str | None = None
    quotas: str | None = None
    enforcement: str | None = None
    admin: str | None = None
    metering: str | None = None
    workers: str | None = None
    quota_admin: tuple[str, ...] = ()
    sidecar: bool = False
    profile: bool = False


def _read_mode(value: object) -> str:
    if value not in ("delay", "mute", "observe"):
        raise ValueError(f"{shown(value)} is not valid")
    return str(value)


class _Flag(NamedTuple):
    key: str
    read: Callable[[object], Any]
    remedy: str


_FLAGS: Final = {
    "listen": _Flag("listener.address", read_listen, f"--listen {HOST_PORT_REMEDY}"),
    "advertise": _Flag("listener.advertised_host", read_reachable_host, f"--advertise with {HOST_REMEDY}"),
    "upstream": _Flag("upstream.bootstrap", read_bootstrap, f"--upstream {HOST_PORT_REMEDY}; several are separated by commas"),
    "quotas": _Flag("quotas.path", read_path, "--quotas with the path of a quota file"),
    "enforcement": _Flag("enforcement.mode", _read_mode, "--enforcement delay, mute or observe"),
    "metering": _Flag("metering.dir", read_path, "--metering with the path of a directory"),
    "workers": _Flag("workers", read_workers, f"--workers with {WORKERS_REMEDY}"),
    "admin": _Flag("admin.address", read_listen, f"--admin {HOST_PORT_REMEDY}"),
}
_MISSING: Final = {
    "listener": Problem(COMMAND_LINE, "--listen", "is missing", "write --listen HOST:PORT, or name a file with --config"),
    "upstream": Problem(COMMAND_LINE, "--upstream", "is missing", "write --upstream HOST:PORT, or name a file with --config"),
}
_NAMES: Final = {
    "listener[1].address": "--listen",
    "listener[1].advertised_host": "--advertise",
    "upstream.bootstrap": "--upstream",
    "admin.address": "--admin",
    "metering.dir": "--metering",
    "workers": "--workers",
}


def apply_flags(table: dict[str, Any], flags: Flags, problems: list[Problem]) -> None:
    """Write the values of `flags` into `table`; invalid flags go to `problems` instead."""
    if flags.sidecar:
        table["sidecar"] = True
    _list_admins(table, flags.quota_admin, problems)
    for name, flag in _FLAGS.items():
        text = getattr(flags, name)
        if text is None:
            continue
        try:
            flag.read(text)
        except ValueError as error:
            problems.append(Problem(COMMAND_LINE, f"--{name}", str(error), f"write {flag.remedy}"))
        else:
            _set(table, name, flag.key, text, problems)


def _list_admins(table: dict[str, Any], principals: Sequence[str], problems: list[Problem]) -> None:
    """Add the given principals to the list; giving one selects authority `list`."""
    for principal in principals:
        try:
            read_principal(principal)
        except ValueError as error:
            problems.append(Problem(COMMAND_LINE, "--quota-admin", str(error), f"write --quota-admin with {PRINCIPAL_REMEDY}"))
    inner = table.setdefault("quota_admin", {}) if principals else None
    if not isinstance(inner, dict):
        return
    if inner.get("authority") == "broker":
        problems.append(Problem(COMMAND_LINE, "--quota-admin", "has no effect where the broker decides on permissions", "leave it out"))
        return
    listed = inner.get("principals", [])
    inner["authority"] = "list"
    inner["principals"] = [*(listed if isinstance(listed, list) else []), *(one for one in principals if _is_principal(one))]


def _is_principal(text: str) -> bool:
    try:
        return bool(read_principal(text))
    except ValueError:
        return False


def name_flags(problems: list[Problem]) -> list[Problem]:
    """Return `problems` of a configuration without a file, with flags in place of keys."""
    complained = {problem.key for problem in problems}
    named = []
    for problem in problems:
        missing = _MISSING.get(problem.key)
        if missing is None:
            named.append(problem._replace(key=_NAMES.get(problem.key, problem.key)))
        elif missing.key not in complained:
            named.append(missing)
    return named


def _set(table: dict[str, Any], name: str, dotted: str, text: str, problems: list[Problem]) -> None:
    section, _, key = dotted.rpartition(".")
    if not section:
        table[key] = text
        return
    if section != "listener":
        inner = table.setdefault(section, {})
    else:
        listeners = table.setdefault("listener", [{}])
        if isinstance(listeners, list) and len(listeners) > 1:
            problems.append(Problem(COMMAND_LINE, f"--{name}", f"the file has {len(listeners)} listeners", "set it in the file"))
            return
        inner = listeners[0] if isinstance(listeners, list) and listeners else None
    if isinstance(inner, dict):  # a value that is not a table is reported with the file
        inner[key] = text
