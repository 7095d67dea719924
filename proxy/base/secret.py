"""A password or token of Sluice's own."""

from __future__ import annotations

from typing import NoReturn


class Secret:
    """A text that is not shown by accident: str, repr and format give a fixed text, and JSON and pickle fail."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, to send it to a broker."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    __hash__ = None  # type: ignore[assignment]  # no key of a table that may be printed

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written down")
