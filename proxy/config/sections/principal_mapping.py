"""`ssl.principal.mapping.rules`: maps a distinguished name to a principal's name, in Kafka's syntax.

Rules are separated by commas: `RULE:pattern/replacement/`, followed by `L` or `U` for lower or upper case, or
`DEFAULT`. The first rule whose pattern matches the whole name applies.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_ONE: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|([\\$])", re.DOTALL)
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
SYNTAX: Final = "DEFAULT or RULE:pattern/replacement/ with L or U behind it, separated by commas"


class MappingRuleError(ValueError):
    """A rule with a syntax error; the text says which; `SYNTAX` is the syntax."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str
    case: str


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Parse rules.

        Raises:
            MappingRuleError: one of them is invalid.
        """
        self._rules = [_parse(rule) for rule in _split(text)]

    def __len__(self) -> int:
        return len(self._rules)

    def name(self, distinguished_name: str) -> str | None:
        """Return the principal's name; None when no rule applies, where Kafka refuses the connection."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return distinguished_name
            if pattern.fullmatch(distinguished_name):
                result = pattern.sub(lambda match, to=replacement: _expand(match, to), distinguished_name)  # type: ignore[misc]
                return result.lower() if case == "L" else result.upper() if case == "U" else result
        return None


def _split(text: str) -> list[str]:
    rules = (match.group(1) for match in _SPLITTER.finditer(text.strip()))
    return [rule for rule in rules if rule]  # Kafka skips empty ones, too


def _parse(rule: str) -> _Rule:
    match = _ONE.match(rule)
    if match is None or match.end() != len(rule):
        rest = rule if match is None else rule[match.end() :]
        raise MappingRuleError(f"rule {rule!r} does not parse at {rest!r}")
    default, pattern, replacement, case, _ = match.groups()
    if default:
        return _Rule(None, "", "")
    try:
        compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern), re.ASCII)
    except re.error as error:
        raise MappingRuleError(f"rule {rule!r}: the pattern is invalid: {error}") from error
    _check_references(rule, replacement, compiled)
    return _Rule(compiled, replacement, case)


def _check_references(rule: str, replacement: str, pattern: re.Pattern[str]) -> None:
    for reference in _REFERENCE.finditer(replacement):
        _, number, name, dangling = reference.groups()
        if dangling or (name and name not in pattern.groupindex) or (number and int(number[0]) and not pattern.groups):
            raise MappingRuleError(f"rule {rule!r}: {reference.group()!r} names no group of the pattern, which has {pattern.groups}")


def _expand(match: re.Match[str], replacement: str) -> str:
    """Expand Java's group references, $1 and ${name}; a number has as many digits as there are groups for. A backslash escapes."""
    return _REFERENCE.sub(lambda reference: _referred(match, reference), replacement)


def _referred(match: re.Match[str], reference: re.Match[str]) -> str:
    literal, number, name, _ = reference.groups()
    if literal is not None:
        return literal
    if name:
        return match.group(name) or ""
    for digits in range(len(number), 0, -1):
        if int(number[:digits]) <= match.re.groups:
            return (match.group(int(number[:digits])) or "") + number[digits:]
    return reference.group()  # Kafka keeps the number of a group that does not exist
