"""Parses Java's properties and Kafka's JAAS entries: `security.protocol=SASL_SSL`, `...PlainLoginModule required username="a";`.

Sources: Java 17 `Properties.load`; Kafka 3.8 `JaasConfig`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_UNICODE: Final = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<sign>[=;])|"(?P<quoted>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<word>[^\s=;"']+))""", re.S
)
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class PropertiesError(ValueError):
    """A text with a syntax error; the message says what is wrong, without a value."""


class JaasEntry(NamedTuple):
    """One login module and its options."""

    module: str
    options: dict[str, str]


def read_properties(text: str) -> dict[str, str]:
    """Return the values by key; of a key that occurs twice the last value counts, as in Java.

    Raises:
        PropertiesError: a `\\u` without four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, at = _read_key(line)
        found[key] = _unescaped(line[at:])
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            lines.append(line)
            pending = None
    return lines if pending is None else [*lines, pending]


def _read_key(line: str) -> tuple[str, int]:
    """Return a key and the offset of its value: behind one `=` or `:` with white space around it, or behind white space alone."""
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescaped(key), len(line) - len(rest)


def _unescaped(text: str) -> str:
    parts, at = [], 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign != "\\" or at >= len(text):
            parts.append(sign if sign != "\\" else "")
            continue
        sign = text[at]
        at += 1
        if sign != "u":
            parts.append(_ESCAPES.get(sign, sign))
            continue
        if _UNICODE.match(text, at) is None:
            raise PropertiesError("a \\u is not followed by four hexadecimal digits")
        parts.append(chr(int(text[at : at + 4], 16)))
        at += 4
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_jaas(text: str) -> JaasEntry:
    """Return the only entry of a `sasl.jaas.config`.

    Raises:
        PropertiesError: it has another form.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[0][0] == "sign" or tokens[1][1].lower() not in _FLAGS:
        raise PropertiesError('it does not begin with a login module and "required"')
    if tokens[-1] != ("sign", ";"):
        raise PropertiesError('it does not end with ";"')
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    while rest:
        if len(rest) < 3 or rest[1] != ("sign", "=") or "sign" in (rest[0][0], rest[2][0]):
            raise PropertiesError('after "required" it does not continue with key="value" options')
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    return JaasEntry(tokens[0][1], options)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at, text = [], 0, text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise PropertiesError("a quotation mark is not closed")
        kind, value = str(found.lastgroup), found[str(found.lastgroup)]
        tokens.append((kind, re.sub(r"\\(.)", r"\1", value, flags=re.S) if kind in ("quoted", "single") else value))
        at = found.end()
    return tokens
