"""Converts TOML tables to msgspec structs, and reports all problems instead of only the first."""

import functools
import re
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from proxy.base.units import shown
from proxy.config.problem import ConfigProblems, Problem

CONFIG_BYTES_MAX: Final = 1024 * 1024

_POSITION: Final = re.compile(r"\[\d+\]")

StructType = TypeVar("StructType", bound=msgspec.Struct)


class Reader(NamedTuple):
    """Converts a TOML value, where its type is not enough."""

    read: Callable[[Any], Any]
    """Returns the converted value or raises ValueError with what is wrong."""
    remedy: str


FLAG_ONLY: Final = object()
"""Annotation of a field that a file must not set."""


class Place(NamedTuple):
    """The place of a table in its file, and the collector of problems."""

    file: str
    prefix: str
    problems: list[Problem]
    later: Mapping[str, str]
    """Dotted keys, without list positions, that only another version has, each with a message; a remedy may follow `; `."""
    top: Collection[str] = ()
    """Keys of the top level: TOML puts a key that stands below a table into that table."""

    def add(self, key: str, message: str, remedy: str = "") -> None:
        self.problems.append(Problem(self.file, self.prefix + key, message, remedy))

    def inside(self, key: str) -> "Place":
        return self._replace(prefix=f"{self.prefix}{key}.")


def read_toml(path: Path, *, bytes_max: int = CONFIG_BYTES_MAX) -> dict[str, Any]:
    """Return the tables in the file at `path`.

    Raises:
        ConfigProblems: unreadable, larger than `bytes_max`, not UTF-8 or not TOML.
    """
    return parse_toml(read_bounded(path, bytes_max), str(path))


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """Return the bytes of the file at `path`, never reading more than `bytes_max` and one.

    Raises:
        ConfigProblems: it is missing, unreadable, not a file, or too large.
    """
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigProblems([Problem(str(path), "", f"cannot be read: {error.strerror}", "name a file that Sluice may read")]) from None
    if len(data) > bytes_max:
        raise ConfigProblems([Problem(str(path), "", f"is larger than {bytes_max} bytes", "split it or make it smaller")])
    return data


def parse_toml(data: bytes, file: str) -> dict[str, Any]:
    """Return the tables in `data`.

    Raises:
        ConfigProblems: not UTF-8 or not TOML; `file` is named in the line.
    """
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigProblems([Problem(file, "", f"is not UTF-8 at byte {error.start}", "save it as UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigProblems([Problem(file, "", f"is not TOML: {error}")]) from None
    except RecursionError:
        raise ConfigProblems([Problem(file, "", "is not TOML: nested too deeply")]) from None


def read_struct(cls: type[StructType], table: Mapping[str, Any], place: Place) -> StructType | None:
    """Return `table` as a `cls`, or None after reporting its problems to `place`."""
    before = len(place.problems)
    values = read_values(cls, table, place)
    return cls(**values) if len(place.problems) == before else None


def read_values(cls: type[msgspec.Struct], table: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return the fields of a `cls` that `table` sets; a field with a problem, reported to `place`, is None."""
    fields = _fields_of(cls)
    _refuse_unknown(table, fields, place)
    for name, field in fields.items():
        if field.required and name not in table:
            place.add(name, "is missing", f"write {_expected(field.hint, place.prefix + name)}")
    return {fields[name].name: _read_value(fields[name].hint, value, name, place) for name, value in table.items() if name in fields}


def keys_of(cls: type[msgspec.Struct]) -> Collection[str]:
    """Return the keys of a table, as a file has them."""
    return _fields_of(cls).keys()


class _Field(NamedTuple):
    name: str
    hint: Any
    required: bool


@functools.cache
def _fields_of(cls: type[msgspec.Struct]) -> dict[str, _Field]:
    """Return the fields of a `cls` that a file may set, by their names in the file."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = (_Field(field.name, hints[field.name], field.required) for field in msgspec.structs.fields(cls))
    names = (field.encode_name for field in msgspec.structs.fields(cls))
    return {name: field for name, field in zip(names, fields, strict=True) if FLAG_ONLY not in _unwrap(field.hint)[1]}


def _refuse_unknown(table: Mapping[str, Any], known: Mapping[str, object], place: Place) -> None:
    for key in table:
        if key in known:
            continue
        sentence = place.later.get(_POSITION.sub("", place.prefix) + key)
        if sentence is not None:
            message, _, remedy = sentence.partition("; ")
            place.add(key, message, remedy or "leave it out")
            continue
        if place.prefix and key in place.top:
            how = f"write it as [{key}]" if isinstance(table[key], dict) else "write it above the first table"
            place.add(key, "belongs to the top level of the file", how)
            continue
        place.add(key, "is not a setting", _suggestion(key, known))


def _suggestion(key: str, known: Mapping[str, object]) -> str:
    import difflib  # imported here, since a valid file needs no suggestion

    if f"{key}_file" in known:
        variable = f", or a variable of the environment in {key}_env" if f"{key}_env" in known else ""
        return f"a secret stands in a file of its own: name it in {key}_file{variable}"
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"


def _read_value(hint: Any, value: object, key: str, place: Place) -> Any:
    kind, notes = _unwrap(hint)
    for note in notes:
        if isinstance(note, Reader):
            return _read_by(note, value, key, place)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _read_nested(kind, value, key, place)
    if typing.get_origin(kind) is tuple and _is_struct(typing.get_args(kind)[0]):
        return _read_list(typing.get_args(kind)[0], value, key, place)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        place.add(key, _complaint(kind, notes, value), f"write {_expected(hint, key)}")
        return None


def _read_by(reader: Reader, value: object, key: str, place: Place) -> Any:
    try:
        return reader.read(value)
    except ValueError as error:
        place.add(key, str(error), f"write {reader.remedy}")
        return None


def _read_nested(kind: type[msgspec.Struct], value: object, key: str, place: Place) -> Any:
    if not isinstance(value, dict):
        place.add(key, f"{shown(value)} is not a table", f"write [{place.prefix}{key}]")
        return None
    return read_struct(kind, value, place.inside(key))


def _read_list(kind: type[msgspec.Struct], value: object, key: str, place: Place) -> Any:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        place.add(key, f"{shown(value)} is not a list of tables", f"write [[{place.prefix}{key}]]")
        return ()
    return tuple(read_struct(kind, item, place.inside(f"{key}[{at}]")) for at, item in enumerate(value, 1))


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type in `hint` and its annotations; None as an alternative is for defaults, since TOML has no null."""
    notes: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        hint, *rest = typing.get_args(hint)
        notes = tuple(rest)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        alternatives = [one for one in typing.get_args(hint) if one is not type(None)]
        if len(alternatives) == 1:
            inner, more = _unwrap(alternatives[0])
            return inner, (*notes, *more)
    return hint, notes


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _complaint(kind: Any, notes: tuple[Any, ...], value: object) -> str:
    if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
        return f"{shown(value)} is not a whole number"
    if kind is int and isinstance(value, int):
        for note in notes:
            if isinstance(note, msgspec.Meta) and note.ge is not None and value < note.ge:
                return f"{value} is below {note.ge}"
            if isinstance(note, msgspec.Meta) and note.le is not None and value > note.le:
                return f"{value} is above {note.le}"
    if kind is bool:
        return f"{shown(value)} is neither true nor false"
    if kind is str and not isinstance(value, str):
        return f"{shown(value)} is not a text"
    return f"{shown(value)} is not valid"


def _expected(hint: Any, key: str) -> str:
    kind, notes = _unwrap(hint)
    for note in notes:
        if isinstance(note, Reader):
            return note.remedy
        if isinstance(note, msgspec.Meta) and note.description:
            return note.description
    if typing.get_origin(kind) is typing.Literal:
        *most, last = (shown(choice) for choice in typing.get_args(kind))
        return f"{', '.join(most)} or {last}" if most else last
    if typing.get_origin(kind) is tuple:
        return f"[[{key}]]"
    return {bool: "true or false", str: "a text in quotes", int: "a whole number"}.get(kind, f"[{key}]")
