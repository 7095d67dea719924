"""Alters the text of `quotas.toml`. Unchanged entries keep their text, comments and order.

tomlkit does the same, but takes too long for thousands of entries. So the text is split at the headers of its entries, and only changed
entries are edited: line by line if each line is a plain assignment, otherwise by tomlkit. tomlkit alters the whole text if it cannot be
split this way (`quota = [{...}]`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from proxy.quota_store.store import StoreContent, Table
from quota.admin.keys import CLIENT_KEYS, IP_KEYS
from quota.admin.messages import EntityKey
from quota.entity import DEFAULT


class TargetKey(NamedTuple):
    """Key of an entry with a target: of a switch or a pacing."""

    table: Table
    target: str


Key = EntityKey | TargetKey
"""Key of an entry: the entity of a quota, or the target of a switch or a pacing."""
HEADERS: Final[Mapping[Table, str]] = MappingProxyType({"switches": "switch", "pacing": "pacing"})
"""The name of an entry of each table with targets."""
VALUE_KEYS: Final[Mapping[Table, str]] = MappingProxyType({"switches": "mode", "pacing": "pacing"})
"""The key of its value."""

_HEADER: Final = re.compile(r"[ \t]*\[\[[ \t]*(quota|switch|pacing)[ \t]*\]\][ \t]*(?:#.*)?\r?")
_IDLE: Final = re.compile(r"[ \t]*(?:#.*)?\r?")
_PLAIN: Final = re.compile(
    r"""(?P<indent>[ \t]*)(?P<key>[A-Za-z0-9_-]+)(?P<equals>[ \t]*=[ \t]*)"""
    r"""(?P<value>"[^"\\]*"|'[^']*'|[0-9A-Za-z_+.-]+)(?P<rest>[ \t]*(?:\#.*)?\r?)"""
)
_LONG_MAX: Final = 2**63 - 1
_WHOLE: Final = {key for key, kind in (CLIENT_KEYS | IP_KEYS).items() if kind.is_whole}
_ORDER: Final = (*CLIENT_KEYS, *IP_KEYS)


class QuotaText(NamedTuple):
    """The text of a file, split into its entries; immutable."""

    prologue: str
    entries: Mapping[Key, str]
    """The text of each entry, from the comment above its header to the comment above the next header."""

    def __str__(self) -> str:
        return self.prologue + "".join(self.entries.values())


def cut(text: str, content: StoreContent) -> QuotaText | None:
    """Return `text` split into its entries; None: it cannot be split line by line. `content` is its content, in the same order."""
    keys: dict[str, Iterator[Key]] = {"quota": iter(content.quotas)}
    keys |= {header: iter(target_keys(content, table)) for table, header in HEADERS.items()}
    lines = text.split("\n")
    starts = [(at, found[1]) for at, line in enumerate(lines) if (found := _HEADER.fullmatch(line))]
    first = starts[0][0] if starts else len(lines)
    if len(starts) != len(content.quotas) + len(content.switches) + len(content.pacing) or not all(map(_IDLE.fullmatch, lines[:first])):
        return None
    if not starts:
        return QuotaText(text, {})
    begins = [_with_comment(lines, at, first=number == 0) for number, (at, _) in enumerate(starts)]
    entries: dict[Key, str] = {}
    for (_, kind), begin, end in zip(starts, begins, [*begins[1:], len(lines)], strict=True):
        key = next(keys[kind], None)
        if key is None:
            return None
        entries[key] = "\n".join(lines[begin:end]) + ("\n" if end < len(lines) else "")
    return QuotaText("".join(f"{line}\n" for line in lines[: begins[0]]), entries)


def _with_comment(lines: list[str], at: int, *, first: bool) -> int:
    """Return the line where an entry begins: with the comment directly above its header.

    The comment above the first header may describe the whole file, so it does not belong to the entry.
    """
    while not first and at and lines[at - 1].lstrip(" \t").startswith("#"):
        at -= 1
    return at


def altered(text: QuotaText, before: StoreContent, after: StoreContent) -> QuotaText:
    """Return `text`, with content `before`, altered to have the content `after`."""
    entries = dict(text.entries)
    for entity, values in _different(before.quotas, after.quotas):
        _put(entries, text, entity, _altered_quota(entries.get(entity), entity, before.quotas.get(entity, {}), values))
    for table in HEADERS:
        for target, mode in _different(before.table(table), after.table(table)):
            key = TargetKey(table, target)
            _put(entries, text, key, None if mode is None else _altered_switch(entries.get(key), key, mode))
    return QuotaText(text.prologue, entries)


def _different(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key, value in before.items():
        if key not in after:
            yield key, None
        elif after[key] != value:
            yield key, after[key]
    yield from ((key, value) for key, value in after.items() if key not in before)


def _put(entries: dict[Key, str], text: QuotaText, key: Key, entry: str | None) -> None:
    if entry is None:
        del entries[key]
        return
    if key not in entries:
        last = next(reversed(entries), None)
        above = text.prologue if last is None else entries[last]
        if above and not above.endswith("\n"):  # the last line of the file
            above += "\n"
        if above.strip() and not above.endswith("\n\n"):
            above += "\n"
        if last is not None:
            entries[last] = above
        elif above != text.prologue:
            entry = above.removeprefix(text.prologue) + entry
    entries[key] = entry


def _altered_quota(entry: str | None, entity: EntityKey, before: Mapping[str, float], after: Mapping[str, float] | None) -> str | None:
    if after is None:
        return None
    if entry is None:
        return "[[quota]]\n" + "".join(
            f"{line}\n" for line in (*_named(entity), *(f"{key} = {_number(key, after[key])}" for key in _sorted(after)))
        )
    values = {
        key: None if key not in after else _number(key, after[key])
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
    return _line_by_line(entry, values) or _by_tomlkit(entry, values)


def _altered_switch(entry: str | None, key: TargetKey, mode: str) -> str:
    value_key = VALUE_KEYS[key.table]
    if entry is None:
        return f"[[{HEADERS[key.table]}]]\ntarget = {_text(key.target)}\n{value_key} = {_text(mode)}\n"
    values: dict[str, str | None] = {value_key: _text(mode)}
    return _line_by_line(entry, values) or _by_tomlkit(entry, values)


def _sorted(values: Mapping[str, float]) -> list[str]:
    return [key for key in _ORDER if key in values]


def _named(entity: EntityKey) -> Iterator[str]:
    """Yield the lines with the parts of an entity, the user first."""
    for kind, name in reversed(entity):
        yield f"{kind} = {_text(DEFAULT if name is None else name)}"
        if name == DEFAULT:
            yield f"literal-{kind} = true"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _number(key: str, value: float) -> str:
    if key in _WHOLE and value.is_integer():
        return str(min(int(value), _LONG_MAX))
    return repr(value)


def _line_by_line(entry: str, values: Mapping[str, str | None]) -> str | None:
    """Return an entry with other values (None: without the key); None: a line of the entry is not a plain assignment."""
    lines, todo, last = entry.split("\n"), dict(values), 0
    written: list[str] = []
    for line in lines:
        found = _PLAIN.fullmatch(line)
        if found is None:
            if _HEADER.fullmatch(line):
                last = len(written) + 1
            elif not _IDLE.fullmatch(line):
                return None
            written.append(line)
            continue
        key = found["key"]
        value = todo.pop(key, found["value"])
        if value is not None:
            written.append(f"{found['indent']}{key}{found['equals']}{value}{found['rest']}")
            last = len(written)
    above = _PLAIN.fullmatch(written[last - 1])
    indent = above["indent"] if above else ""
    end = "\r" if written[last - 1].endswith("\r") else ""
    new = [f"{indent}{key} = {todo[key]}{end}" for key in sorted(todo, key=_place) if todo[key] is not None]
    return "\n".join([*written[:last], *new, *([""] if new and last == len(written) else []), *written[last:]])


def _place(key: str) -> int:
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


def _by_tomlkit(entry: str, values: Mapping[str, str | None]) -> str:
    document = _parsed(entry)
    ((_, rows),) = document.items()
    _set(rows[0], values)
    return _dumped(document)


def _parsed(text: str) -> Any:
    import tomlkit  # imported here and below: most files are altered line by line, and most processes alter none
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ValueError(str(error)) from error


def _dumped(document: Any) -> str:
    import tomlkit

    return tomlkit.dumps(document)


def _set(row: Any, values: Mapping[str, str | None]) -> None:
    import tomlkit

    for key in sorted(values, key=_place):
        text = values[key]
        if text is not None:
            row[key] = tomlkit.value(text)
        elif key in row:
            del row[key]


def altered_whole(text: str, before: StoreContent, after: StoreContent) -> str:
    """Return `text`, with content `before` in any form of TOML, altered to have the content `after`.

    Raises:
        LookupError, TypeError, ValueError: tomlkit cannot alter this form.
    """
    document = _parsed(text)
    _alter_rows(document, "quota", list(before.quotas), before.quotas, after.quotas)
    for table, header in HEADERS.items():
        _alter_targets(document, table, header, before.table(table), after.table(table))
    return _dumped(document)


def _alter_rows(document: Any, kind: str, keys: list[Any], before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
    gone: list[int] = []
    for key, new in _different(before, after):
        if key in before and new is None:
            gone.append(keys.index(key))
        elif key in before:
            _set(document[kind][keys.index(key)], _texts(before[key], new))
        else:
            _append(document, kind, _parsed(_altered_quota(None, key, {}, new) or "")[kind][0])
    _delete_rows(document, kind, gone)


def _alter_targets(document: Any, table: Table, header: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    gone: list[int] = []
    keys = list(before)
    for target, mode in _different(before, after):
        if mode is None:
            gone.append(keys.index(target))
        elif target in before:
            _set(document[header][keys.index(target)], {VALUE_KEYS[table]: _text(mode)})
        else:
            _append(document, header, _parsed(_altered_switch(None, TargetKey(table, target), mode))[header][0])
    _delete_rows(document, header, gone)


def _delete_rows(document: Any, kind: str, gone: list[int]) -> None:
    for at in sorted(gone, reverse=True):
        del document[kind][at]


def _append(document: Any, kind: str, row: Any) -> None:
    import tomlkit

    if kind not in document:
        document[kind] = tomlkit.aot()
    if isinstance(document[kind], tomlkit.items.Array):
        inline = tomlkit.inline_table()
        inline.update(row.unwrap())
        row = inline
    document[kind].append(row)


def _texts(before: Any, after: Any) -> dict[str, str | None]:
    return {
        key: None if key not in after else _number(key, after[key])
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }


def target_keys(content: StoreContent, table: Table) -> list[TargetKey]:
    """Return the keys of a table's entries, in their order."""
    return [TargetKey(table, target) for target in content.table(table)]
