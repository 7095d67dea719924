"""Pages in JSON, and the parameters that select a part of one."""

import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

_DIGITS_MAX: Final = 15


def json_page(page: Mapping[str, Any], *, status: int = 200) -> web.Response:
    """Return a page; what JSON has no number for was made something else before."""
    return web.Response(status=status, body=json.dumps(page).encode(), content_type="application/json")


def number_in(request: web.Request, name: str, otherwise: int) -> int:
    """Return a whole number of the query, or `otherwise` where it is not given.

    Raises:
        web.HTTPBadRequest: it is none.
    """
    text = request.query.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise web.HTTPBadRequest(reason=f"{name} is a whole number")
    return int(text)


def limit_in(request: web.Request, most: int) -> int:
    """Return how many entries a page is to have: `limit` of the query, from 1 to `most`, which it is where it is not given.

    Raises:
        web.HTTPBadRequest: it is no number.
    """
    return max(1, min(number_in(request, "limit", most), most))
