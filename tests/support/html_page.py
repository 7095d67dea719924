"""Checks that a report is one complete HTML file without references to a server."""

import re
from html.parser import HTMLParser
from typing import Final

VOID: Final = {"meta", "br", "path", "rect", "line", "circle"}


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert tag not in {"script", "link", "img", "iframe", "object"}, f"<{tag}> does not belong in a report"
        for name, value in attrs:
            assert name not in {"src", "href", "onload", "onclick"}, f"{name}={value} asks for something"
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def check_page(page: str, *, has_drawing: bool = True) -> None:
    """Assert that tags are balanced, that the page has no external references and no scripts, and that no number is NaN or infinite."""
    balance = _Balance()
    balance.feed(page)
    balance.close()
    assert balance.open == []
    assert ("svg" in balance.seen) == has_drawing
    assert not re.search(r"https?://|@import|url\(|NaN|>nan|inf\b", page), "a reference to somewhere else, or a number that is none"
