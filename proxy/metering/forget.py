"""Removes a user's name from the dimension tables, and the switches and pacings of `states`; the facts stay.

A changed file is written under another name. Then the manifest is replaced atomically and names the new file. The old file is removed
last, or by the next call after an interruption.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metering_format.manifest import pretty
from metering_format.places import KIND, MANIFESTS, SCHEMA_VERSIONS, is_inside
from proxy.base.files import TEMPORARY, put, remove
from proxy.metering.facts.names import Names
from proxy.metering.file_names import left_files, next_name
from proxy.metering.files import hashed, write_parquet
from proxy.metering.layout import check_readable
from proxy.metering.locks import changing
from quota.entity import DEFAULT, user_tag
from quota.groups.declared_groups import GROUP_TAG
from quota.names import kept_name


class ForgetError(Exception):
    """No name was forgotten: a file set is damaged or of another version, or the name is invalid."""


FORGOTTEN: Final = "__forgotten__"
NAMING: Final = ("dim_group", "dim_client", "dim_bound", "states")
"""Tables with names: the dimensions, the switches and the pacings."""
_OPTIONAL_COLUMNS: Final = (("states", "switches"), ("states", "pacing"), ("dim_group", "tags"))
"""Columns that older versions do not have."""


@dataclass(slots=True)
class ForgetResult:
    """Number of rows that lost a name, and of their file sets."""

    rows: int = 0
    file_sets: int = 0


class _Entry(msgspec.Struct):
    """The entry of each file in a manifest."""

    table: str
    path: str


def forget_user(directory: Path, user: str, keyed: Names | None = None) -> ForgetResult:
    """Remove a user's name from every finished file set.

    Args:
        user: the name of the principal, without its type.
        keyed: converts the name to the form of keyed names.

    Raises:
        ForgetError: the name is invalid, or a manifest cannot be used, and nothing was changed; or a file of it cannot be used.
        OSError: a file cannot be read or written. File sets before it are done, and the call can be repeated.
    """
    _check_name(user)
    done = ForgetResult()
    names = {kept_name(user), user_tag(user)}  # groups, switches and pacings contain the encoded name, as in metric tags
    if keyed is not None:
        names |= {hashed for name in names if (hashed := keyed(name)) is not None}
    for path in _manifests(directory, has_key=keyed is not None):
        with changing(directory):
            manifest = _manifest(path)  # checked again: retention may have removed it meanwhile
            rows = 0 if manifest is None else _forget_in(directory, path, manifest, names)
        done.rows += rows
        done.file_sets += rows > 0
    return done


def _check_name(user: str) -> None:
    """Refuse the empty name, which means groups without a user, and bytes that are not UTF-8, which no file contains."""
    try:
        user.encode()
    except UnicodeEncodeError as error:
        raise ForgetError("--user: is not UTF-8, as every name in the files is") from error
    if not user:
        raise ForgetError("--user: is empty; write a name")


def _manifests(directory: Path, *, has_key: bool) -> list[Path]:
    """Return all manifests; each is valid."""
    check_readable(directory)
    found = []
    for path in sorted((directory / MANIFESTS).rglob("*.json")):
        manifest = None if path.name.startswith(TEMPORARY) else _manifest(path)
        if manifest is None:
            continue
        if manifest.get("names") == "keyed" and not has_key:
            raise ForgetError(f"{path}: its names are keyed; name the key file with --key-file")
        found.append(path)
    return found


def _manifest(path: Path) -> dict[str, Any] | None:
    """Return the content of a manifest; None: it was removed, or belongs to another program."""
    try:
        manifest = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ForgetError(f"{path}: not a manifest ({error}); restore it") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        return None
    if manifest.get("schema") not in SCHEMA_VERSIONS:
        known = " and ".join(map(str, SCHEMA_VERSIONS))
        raise ForgetError(f"{path}: schema {manifest.get('schema')!r}, this version supports {known}; use the Sluice that wrote it")
    try:
        entries = msgspec.convert(manifest.get("files"), list[_Entry])
    except msgspec.ValidationError as error:
        raise ForgetError(f"{path}: not a manifest ({error}); restore it") from error
    if outside := [entry.path for entry in entries if not is_inside(entry.path)]:
        raise ForgetError(f"{path}: names {outside[0]}, which is not in this directory; restore it")
    return manifest


def _forget_in(directory: Path, path: Path, manifest: dict[str, Any], names: set[str]) -> int:
    changed = 0
    for entry in manifest["files"]:
        if entry["table"] not in NAMING:
            continue
        place = directory / entry["path"]
        table = _read(place, entry["table"])
        rewritten, rows = _without(table, entry["table"], names)
        if not rows:
            continue
        changed += rows
        new = place.with_name(next_name(place.name))
        temporary = new.with_name(TEMPORARY + new.name)
        write_parquet(rewritten, temporary)
        put(new, temporary)
        entry |= {"path": str(new.relative_to(directory)), **hashed(new)}
    if changed:
        manifest["replaces"] = [*manifest.get("replaces", ()), hashlib.sha256(path.read_bytes()).hexdigest()]
        temporary = path.with_name(TEMPORARY + path.name)
        temporary.write_bytes(pretty(manifest))
        put(path, temporary)
    _remove_left(directory, path, manifest)
    return changed


def _remove_left(directory: Path, path: Path, manifest: dict[str, Any]) -> None:
    """Remove files with names that no manifest names: earlier ones, and those that an interrupted call or merge has left."""
    parts = {str(part["file_set"]) for part in manifest.get("merged", ())}
    file_sets = {path.stem, *(part for part in parts if not path.with_name(f"{part}.json").exists())}
    for entry in manifest["files"]:
        if entry["table"] in NAMING:
            place = directory / entry["path"]
            remove(*map(Path, left_files(map(str, place.parent.glob("*.parquet")), file_sets, {str(place)})))


def _read(place: Path, name: str) -> pa.Table:
    try:
        table = pq.read_table(place, partitioning=None)
    except FileNotFoundError as error:
        raise ForgetError(f"{place}: is missing, and its manifest lists it; restore it") from error
    except pa.ArrowInvalid as error:
        raise ForgetError(f"{place}: not a readable Parquet file ({str(error).splitlines()[0]}); restore it") from error
    if any(column not in table.column_names for column, _ in _COLUMNS[name] if (name, column) not in _OPTIONAL_COLUMNS):
        raise ForgetError(f"{place}: is no {name} of metering; another program wrote it")
    return table


def _without(table: pa.Table, name: str, names: set[str]) -> tuple[pa.Table, int]:
    """Return the table without the names, and the number of rows that had one."""
    hit = pa.array([False] * len(table))
    for column, form in _COLUMNS[name]:
        if column not in table.column_names:
            continue
        values = table.column(column)
        if form is None:
            mine = pc.fill_null(pc.is_in(values, value_set=pa.array(sorted(names))), fill_value=False).combine_chunks()
            replaced: Any = pc.if_else(mine, FORGOTTEN, values)
        else:
            texts = [None if text is None else form(text, names) for text in values.to_pylist()]
            mine = pa.array([new != text for new, text in zip(texts, values.to_pylist(), strict=True)], pa.bool_())
            replaced = pa.array(texts, values.type)
        table = table.set_column(table.schema.get_field_index(column), table.schema.field(column), replaced)
        hit = pc.or_(hit, mine)
    return table, int(pc.sum(hit).as_py() or 0)


def _rule_without(rule: str, names: set[str]) -> str:
    for name in names - {DEFAULT}:  # in a rule this is the default quota
        if rule == f"user={name}" or rule.startswith(f"user={name},client-id="):
            return f"user={FORGOTTEN}" + rule.removeprefix(f"user={name}")
    return rule


def _tags_without(tags: str, names: set[str]) -> str:
    decoded = msgspec.json.decode(tags)
    kept = {key: FORGOTTEN if key != GROUP_TAG and name in names else name for key, name in decoded.items()}
    return tags if kept == decoded else msgspec.json.encode(kept).decode()


def _targets_without(targets: str, names: set[str]) -> str:
    rows = msgspec.json.decode(targets)
    if not any(names.intersection(row.get("user", ())) for row in rows):
        return targets
    for row in rows:
        if names.intersection(row.get("user", ())):
            row["user"] = [FORGOTTEN]
    return msgspec.json.encode(rows).decode()


_COLUMNS: Final[dict[str, tuple[tuple[str, Callable[[str, set[str]], str] | None], ...]]] = {
    "dim_group": (("tag_user", None), ("tags", _tags_without)),
    "dim_client": (("principal", None),),
    "dim_bound": (("rule", _rule_without), ("who", None)),
    "states": (("switches", _targets_without), ("pacing", _targets_without)),
}
"""Columns that can have a user's name, and the function that removes the name from a text."""
