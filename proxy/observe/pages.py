"""Pages in JSON."""

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web


def json_page(page: Mapping[str, Any], *, status: int = 200) -> web.Response:
    """Return a page; what JSON has no number for was made something else before."""
    return web.Response(status=status, body=json.dumps(page).encode(), content_type="application/json")
