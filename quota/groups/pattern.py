"""Patterns of names: `*` matches any run of characters, `?` matches one, a backslash escapes the next character.

Matching takes time proportional to the name's length, whatever the pattern: names come from clients, and a pattern with backtracking
would delay all other connections. All positions of the pattern that the characters read so far can lead to are kept as bits
of one number (Baeza-Yates and Gonnet's Shift-And, with a loop for each `*`).
"""

from __future__ import annotations

from typing import Final

PATTERN_CHARS_MAX: Final = 256

_ANY_ONE: Final = -1  # the token for `?`


class Pattern:
    """One pattern; case-sensitive.

    Raises:
        ValueError: `text` is not a valid pattern; the message says why.
    """

    __slots__ = ("_accepts", "_any_one", "_loops", "_of", "_plain", "_prefix", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        if not text:
            raise ValueError("is empty")
        if len(text) > PATTERN_CHARS_MAX:
            raise ValueError(f"is longer than {PATTERN_CHARS_MAX} characters")
        tokens, loops = _read(text)
        self._loops = loops
        self._accepts = 1 << len(tokens)
        self._any_one = 0  # the tokens that match any character
        self._of: dict[int, int] = {}  # the tokens that match a character, by its code point
        for at, token in enumerate(tokens):
            if token == _ANY_ONE:
                self._any_one |= 1 << at
            else:
                self._of[token] = self._of.get(token, 0) | 1 << at
        self._plain = None if loops or self._any_one else "".join(map(chr, tokens))
        self._prefix = _prefix(tokens, loops)

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole of `name`."""
        if self._plain is not None:
            return name == self._plain
        if not name.startswith(self._prefix):  # most patterns differ from most names in the prefix
            return False
        places, loops, any_one, of = 1, self._loops, self._any_one, self._of
        for character in name:
            places = (places & (of.get(ord(character), 0) | any_one)) << 1 | places & loops
            if not places:
                return False
        return bool(places & self._accepts)

    def covers(self, other: Pattern) -> bool:
        """Whether this pattern matches every name that `other` matches, as far as one pass over `other` can tell; False is not a proof."""
        if not other._prefix.startswith(self._prefix):  # most patterns differ in the prefix
            return False
        tokens, loops = _read(other.text)
        places = 1
        for at, token in enumerate([*tokens, None]):
            if loops >> at & 1:
                places &= self._loops  # a place without a loop is left after some number of characters
            if token is not None:
                passes = self._any_one if token == _ANY_ONE else self._of.get(token, 0) | self._any_one
                places = (places & passes) << 1 | places & self._loops
        return bool(places & self._accepts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def _prefix(tokens: list[int], loops: int) -> str:
    """Return the prefix that every matching name has."""
    prefix: list[str] = []
    for at, token in enumerate(tokens):
        if token == _ANY_ONE or loops >> at & 1:
            break
        prefix.append(chr(token))
    return "".join(prefix)


def _read(text: str) -> tuple[list[int], int]:
    """Return the tokens, and a bit for each position between them where a `*` stands."""
    tokens: list[int] = []
    loops = 0
    characters = iter(text)
    for character in characters:
        if character == "*":
            loops |= 1 << len(tokens)
        elif character == "?":
            tokens.append(_ANY_ONE)
        elif character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError("ends with a backslash")
            tokens.append(ord(escaped))
        else:
            tokens.append(ord(character))
    return tokens, loops
