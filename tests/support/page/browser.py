"""Debian's Chromium, driven by Playwright: the browser of a test module, and pages that notice what a page must not do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, sync_playwright

from tests.support.tools import in_ci

CHROMIUM: Final = shutil.which("chromium")
LIMIT_MS: Final = 30_000
"""A time limit against hangs; a test goes on as soon as the page shows what it waits for."""


def require_chromium() -> str:
    """Return the path of Chromium; skip the test where it is missing, and fail in CI."""
    if CHROMIUM is None:
        reason = "no Chromium: run `make debian`, or install Debian's package chromium"
        if in_ci():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return CHROMIUM


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser; each test has pages of its own in it."""
    path = require_chromium()
    with sync_playwright() as playwright:
        browser = _launched(playwright, path)
        try:
            yield browser
        finally:
            browser.close()


def _launched(playwright: Playwright, path: str) -> Browser:
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])  # root has no sandbox


class WatchedPage:
    """A page of one admin port, with what it logged and asked for.

    Attributes:
        errors: errors of the console, and uncaught ones.
        urls: every address that the page asked for.
    """

    def __init__(self, browser: Browser, origin: str, *, token: str | None = None, **settings: Any) -> None:
        self._context = browser.new_context(**settings)
        self._context.set_default_timeout(LIMIT_MS)
        if token is not None:
            self._context.add_init_script(f"sessionStorage.setItem('sluice-token', '{token}')")
        self.origin = origin
        self.errors: list[str] = []
        self.urls: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._on_request)

    def open(self, view: str = "") -> Page:
        """Show a view."""
        self.page.goto(f"{self.origin}/{view}")
        return self.page

    def close(self, *, secrets: tuple[str, ...] = ()) -> None:
        """Close the page. It must have asked only its own origin, shown a token in no address, and kept no cookie."""
        cookies = self._context.cookies()
        self._context.close()
        assert cookies == []
        assert {f"{urlsplit(url).scheme}://{urlsplit(url).netloc}" for url in self.urls} <= {self.origin}
        assert not any(secret in url for secret in secrets for url in self.urls)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        self.urls.append(request.url)
