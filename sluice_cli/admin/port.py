"""A client of Sluice's admin port."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from sluice.connect_errors import connect_error

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
TIMEOUT_S: Final = 30.0


class AdminPortError(Exception):
    """The admin port did not answer, or refused; the text is one line."""


class AdminPort:
    """Sends one request after the other.

    Args:
        url: `http://HOST:PORT` or `https://HOST:PORT`.
        token: for ports that require one.
        context: TLS settings for https; None: the system's authorities.
        timeout_s: maximum time without a byte from the port, in seconds.

    Raises:
        AdminPortError: the URL is invalid.
    """

    def __init__(self, url: str, token: str | None, context: ssl.SSLContext | None, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise AdminPortError(f"--admin: {url} is not the URL of an admin port; write http://HOST:PORT")
        self._url = url
        self._host = parts.hostname
        self._port = _port_of(parts.port, url)
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._token = token
        self._timeout_s = timeout_s

    def get(self, path: str, **query: str | int | None) -> Any:
        """Return a page; query parameters that are None are left out.

        Raises:
            AdminPortError: the page does not exist or is not allowed.
        """
        asked = urlencode({name.replace("_", "-"): value for name, value in query.items() if value is not None}, quote_via=quote)
        return self._ask("GET", f"{path}?{asked}" if asked else path, None)

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield name and content of each server-sent event, until the port ends the stream.

        Raises:
            AdminPortError: the stream does not exist, is not allowed, or broke.
        """
        connection = self._connection()
        try:
            connection.request("GET", path, headers=self._authorization())
            response = connection.getresponse()
            if response.status != http.client.OK:
                self._page(response.status, response.read(ANSWER_BYTES_MAX))
            name = ""
            while line := response.readline(ANSWER_BYTES_MAX):
                field, _, text = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = text
                elif field == "data":
                    yield name, json.loads(text)
        except (OSError, http.client.HTTPException) as error:
            raise AdminPortError(f"{self._url}: {self._reason_of(error)}") from error
        finally:
            connection.close()

    def post(self, path: str, body: object) -> Any:
        """Send a change, and return the response.

        Raises:
            AdminPortError: the change was not made.
        """
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        headers |= self._authorization()
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise AdminPortError(f"{self._url}: {self._reason_of(error)}") from error
        finally:
            connection.close()
        return self._page(response.status, text)

    def _authorization(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._context)

    def _reason_of(self, error: Exception) -> str:
        is_closed = isinstance(error, http.client.RemoteDisconnected | http.client.BadStatusLine | ConnectionResetError)
        if is_closed and self._context is None:
            return "no HTTP response; is this a Kafka port, or does the admin port require https?"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message}); name its certificate authority with --admin-ca"
        return connect_error(error, tls=self._context is not None)

    def _page(self, status: int, text: bytes) -> Any:
        try:
            page = json.loads(text)
        except ValueError:
            page = {"error": " ".join(text.decode("utf-8", "replace").split())[:300]}
        if status == http.client.OK:
            return page
        raise AdminPortError(f"{self._url}: {_error_of(page) or f'status {status}'}")


def _error_of(page: object) -> str | None:
    if not isinstance(page, dict):
        return None
    error = page.get("error") or next((result["error"] for result in page.get("results", []) if result.get("error")), None)
    return str(error) if error else None


def _port_of(port: int | None, url: str) -> int:
    if port is None:
        raise AdminPortError(f"--admin: {url} has no port; write http://HOST:PORT")
    return port
