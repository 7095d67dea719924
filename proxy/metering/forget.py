"""Forget who somebody was: the strings go from the dimension tables and the switches of `states`, the facts stay.

Such a file is written anew under another name, and the manifest, replaced at once, is what makes it the one that counts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from proxy.metering.files import hashed, write_parquet
from proxy.metering.layout import TEMPORARY, check_readable, put, remove
from proxy.metering.names import Names
from proxy.metering.schema import KIND, SCHEMA_VERSION
from quota.entity import sanitize


class ForgetError(Exception):
    """A file set in which nobody can be forgotten: it is damaged, or of another version."""


FORGOTTEN: Final = "__forgotten__"
NAMING: Final = ("dim_group", "dim_client", "dim_bound", "states")
"""Tables with names: the dimensions, and the switches that were in force."""


@dataclass(slots=True)
class Forgotten:
    """How many rows lost a name, in how many file sets."""

    rows: int = 0
    file_sets: int = 0


def forget_user(directory: Path, user: str, keyed: Names | None = None) -> Forgotten:
    """Take a user's name out of every finished file set.

    Args:
        user: the name of the principal, without its type.
        keyed: turns it into what stands in files with keyed names.

    Raises:
        OSError, ForgetError: a file cannot be read or written; file sets before it are done, and it can be begun again.
    """
    done = Forgotten()
    names = {user, sanitize(user)}  # groups and switches have it encoded, as metric tags do
    if keyed is not None:
        names |= {hashed for name in names if (hashed := keyed(name)) is not None}
    for path, manifest in _manifests(directory):
        rows = _forget_in(directory, path, manifest, names)
        done.rows += rows
        done.file_sets += rows > 0
    return done


def _manifests(directory: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    check_readable(directory)
    for path in sorted((directory / "manifests").rglob("*.json")):
        if path.name.startswith(TEMPORARY):
            continue
        try:
            manifest = msgspec.json.decode(path.read_bytes())
        except msgspec.DecodeError as error:
            raise ForgetError(f"{path}: not a manifest ({error}); restore it") from error
        if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
            continue
        if manifest.get("schema") != SCHEMA_VERSION:
            raise ForgetError(
                f"{path}: schema {manifest.get('schema')!r}, this version knows {SCHEMA_VERSION}; use the Sluice that wrote it"
            )
        yield path, manifest


def _forget_in(directory: Path, path: Path, manifest: dict[str, Any], names: set[str]) -> int:
    old: list[Path] = []
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
        new = place.with_name(_next_name(place.name))
        temporary = new.with_name(TEMPORARY + new.name)
        write_parquet(rewritten, temporary)
        put(new, temporary)
        old.append(place)
        entry |= {"path": str(new.relative_to(directory)), **hashed(new)}
    if changed:
        manifest["replaces"] = [*manifest.get("replaces", ()), hashlib.sha256(path.read_bytes()).hexdigest()]
        temporary = path.with_name(TEMPORARY + path.name)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        put(path, temporary)
        remove(*old)
    return changed


def _read(place: Path, name: str) -> pa.Table:
    try:
        table = pq.read_table(place, partitioning=None)
    except pa.ArrowInvalid as error:
        raise ForgetError(f"{place}: not a readable Parquet file ({str(error).splitlines()[0]}); restore it") from error
    if any(column not in table.column_names for column, _ in _COLUMNS[name] if name != "states"):  # older ones had no switches
        raise ForgetError(f"{place}: is no {name} of schema {SCHEMA_VERSION}; it is a file of another program")
    return table


def _next_name(name: str) -> str:
    """`X.parquet` becomes `X.r1.parquet`, then `X.r2.parquet`."""
    found = re.fullmatch(r"(.+?)(?:\.r(\d+))?\.parquet", name)
    assert found is not None, name
    return f"{found[1]}.r{int(found[2] or 0) + 1}.parquet"


def _without(table: pa.Table, name: str, names: set[str]) -> tuple[pa.Table, int]:
    """Return the table without the names, and how many rows had one."""
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
    for name in names:
        if rule == f"user={name}" or rule.startswith(f"user={name},"):
            return f"user={FORGOTTEN}" + rule.removeprefix(f"user={name}")
    return rule


def _switches_without(switches: str, names: set[str]) -> str:
    rows = msgspec.json.decode(switches)
    if not any(names.intersection(row.get("user", ())) for row in rows):
        return switches
    for row in rows:
        if names.intersection(row.get("user", ())):
            row["user"] = [FORGOTTEN]
    return msgspec.json.encode(rows).decode()


_COLUMNS: Final[dict[str, tuple[tuple[str, Callable[[str, set[str]], str] | None], ...]]] = {
    "dim_group": (("tag_user", None),),
    "dim_client": (("principal", None),),
    "dim_bound": (("rule", _rule_without), ("who", None)),
    "states": (("switches", _switches_without),),
}
"""Columns that can name a user, and how the name goes where it is a part of a text."""
