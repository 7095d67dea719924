"""Forget who somebody was: the strings go from the dimension tables, the facts stay.

A dimension file is written anew under another name, and the manifest, replaced at once, is what makes it the one that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from proxy.metering.files import hashed, write_parquet
from proxy.metering.layout import TEMPORARY, put, remove
from proxy.metering.names import Names
from proxy.metering.schema import KIND

FORGOTTEN: Final = "__forgotten__"
DIMENSIONS: Final = ("dim_group", "dim_client", "dim_bound")


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
        OSError: a file cannot be read or written; file sets before it are done, and it can be begun again.
    """
    done = Forgotten()
    names = {user} if keyed is None else {user, keyed(user) or user}
    for path, manifest in _manifests(directory):
        rows = _forget_in(directory, path, manifest, names)
        done.rows += rows
        done.file_sets += rows > 0
    return done


def _manifests(directory: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted((directory / "manifests").rglob("*.json")):
        if path.name.startswith(TEMPORARY):
            continue
        manifest = msgspec.json.decode(path.read_bytes())
        if isinstance(manifest, dict) and manifest.get("kind") == KIND:
            yield path, manifest


def _forget_in(directory: Path, path: Path, manifest: dict[str, Any], names: set[str]) -> int:
    old: list[Path] = []
    changed = 0
    for entry in manifest["files"]:
        if entry["table"] not in DIMENSIONS:
            continue
        place = directory / entry["path"]
        table = pq.read_table(place, partitioning=None)
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
        temporary = path.with_name(TEMPORARY + path.name)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        put(path, temporary)
        remove(*old)
    return changed


def _next_name(name: str) -> str:
    """`X.parquet` becomes `X.r1.parquet`, then `X.r2.parquet`."""
    found = re.fullmatch(r"(.+?)(?:\.r(\d+))?\.parquet", name)
    assert found is not None, name
    return f"{found[1]}.r{int(found[2] or 0) + 1}.parquet"


def _without(table: pa.Table, name: str, names: set[str]) -> tuple[pa.Table, int]:
    """Return the table without the names, and how many rows had one."""
    hit = pa.array([False] * len(table))
    for column, part_of_rule in _columns(name):
        values = table.column(column)
        if part_of_rule:
            texts = [_rule_without(text, names) for text in values.to_pylist()]
            mine = pa.array([new != text for new, text in zip(texts, values.to_pylist(), strict=True)], pa.bool_())
            replaced: Any = pa.array(texts, values.type)
        else:
            mine = pc.fill_null(pc.is_in(values, value_set=pa.array(sorted(names))), fill_value=False).combine_chunks()
            replaced = pc.if_else(mine, FORGOTTEN, values)
        table = table.set_column(table.schema.get_field_index(column), table.schema.field(column), replaced)
        hit = pc.or_(hit, mine)
    return table, int(pc.sum(hit).as_py() or 0)


def _columns(table: str) -> tuple[tuple[str, bool], ...]:
    """Columns that can name a user, and whether the name is a part of a rule there."""
    return {
        "dim_group": (("tag_user", False),),
        "dim_client": (("principal", False),),
        "dim_bound": (("rule", True), ("who", False)),
    }[table]


def _rule_without(rule: str | None, names: set[str]) -> str | None:
    if rule is None:
        return None
    for name in names:
        if rule == f"user={name}" or rule.startswith(f"user={name},"):
            return f"user={FORGOTTEN}" + rule.removeprefix(f"user={name}")
    return rule
