"""JSON pages, and the parameters that select a part of one."""

import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

SAFE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response, where it has no value of its own."""
_DIGITS_MAX: Final = 15


def json_page(page: Mapping[str, Any], *, status: int = 200) -> web.Response:
    """Return a page; values without a JSON form were converted before."""
    return web.Response(status=status, body=json.dumps(page).encode(), content_type="application/json")


def number_in(request: web.Request, name: str, otherwise: int) -> int:
    """Return an integer of the query, or `otherwise` when it is missing.

    Raises:
        web.HTTPBadRequest: it is not an integer.
    """
    text = request.query.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise web.HTTPBadRequest(reason=f"{name} is a whole number")
    return int(text)


def limit_in(request: web.Request, most: int) -> int:
    """Return the number of entries of a page: `limit` of the query, from 1 to `most`, by default `most`.

    Raises:
        web.HTTPBadRequest: it is not a number.
    """
    return max(1, min(number_in(request, "limit", most), most))
