"""Access rules of the admin port.

Health and metrics are open to every client that reaches the port, but metrics name clients only to this host and to holders of a token.
All other pages require a token; without configured tokens, this host may read them. A web page in a browser on this host cannot use
the port: it has no token, its host name is not that of the port, and browsers send the origin of a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from proxy.base.host_port import ip_of
from proxy.observe.tokens import Tokens
from proxy.quota_admin.requester import Requester, Right

LISTENER: Final = "admin"
_JSON: Final = "application/json"
_SAME_SITE: Final = ("same-origin", "none")


class Access:
    """Decides whether a request is allowed.

    Args:
        tokens: the valid tokens.
        open_quotas: whether other hosts may read pages when no token is configured.
        open_names: whether /metrics always names clients.
        is_local: whether an address belongs to this host.
    """

    def __init__(self, tokens: Tokens, *, open_quotas: bool, open_names: bool = False, is_local: Callable[[str], bool]) -> None:
        self.tokens = tokens
        self._open_quotas = open_quotas
        self._open_names = open_names
        self._is_local = is_local

    def sees_names(self, request: web.Request) -> bool:
        """Return whether the metrics for a request may name clients."""
        return self._open_names or self.is_known(request)

    def is_known(self, request: web.Request) -> bool:
        """Return whether a request has a valid token, or comes from this host by its own name."""
        return self._holder(request) is not None or self._foreign_reason(request) is None

    def reader(self, request: web.Request, *, can_be_opened: bool = False) -> Requester:
        """Return the requester of a page.

        Raises:
            web.HTTPForbidden: not authorized.
        """
        holder = self._holder(request)
        if holder is not None:
            return _requester(request, *holder)
        if self.tokens:
            raise web.HTTPForbidden(reason=self._no_holder_reason(request))
        if not (can_be_opened and self._open_quotas):
            self._refuse_foreign(request)
        return _requester(request, None, "read")

    def writer(self, request: web.Request) -> Requester:
        """Return the requester of a change; the authorizer decides whether it is allowed.

        Raises:
            web.HTTPForbidden: not allowed for requests of this kind.
            web.HTTPUnsupportedMediaType: the body is not JSON.
        """
        if request.content_type != _JSON:
            raise web.HTTPUnsupportedMediaType(reason=f"send JSON, with Content-Type: {_JSON}")
        self.refuse_other_site(request)
        holder = self._holder(request)
        if holder is not None:
            return _requester(request, *holder)
        self._refuse_foreign(request)
        return _requester(request, None, None)

    def refuse_other_site(self, request: web.Request) -> None:
        """Refuse a request that a web page of another origin sends.

        Raises:
            web.HTTPForbidden: it is one.
        """
        if request.headers.get("Sec-Fetch-Site", "none") not in _SAME_SITE or not _is_own_origin(request):
            raise web.HTTPForbidden(reason="changes from web pages of another origin are refused")

    def _holder(self, request: web.Request) -> tuple[str, Right] | None:
        """Return the holder of a valid token. A token is invalid where it could be read in transit."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not (request.secure or self._is_local(request.remote or "")):
            return None
        return self.tokens.holder(token.strip().encode("utf-8", "surrogateescape"))

    def _no_holder_reason(self, request: web.Request) -> str:
        """Return why a request has no holder of a token, where one is needed."""
        if "Authorization" not in request.headers:
            return "only with a token: Authorization: Bearer TOKEN"
        if not (request.secure or self._is_local(request.remote or "")):
            return "a token is accepted inside TLS only, or from this machine"
        return "the token is unknown here: it is in no file of [[admin.tokens]]"

    def _refuse_foreign(self, request: web.Request) -> None:
        reason = self._foreign_reason(request)
        if reason is not None:
            raise web.HTTPForbidden(reason=reason)

    def _foreign_reason(self, request: web.Request) -> str | None:
        """Return why a request does not count as one of this host; None: it does."""
        if not self._is_local(request.remote or ""):
            return "only with a token and TLS, or on this machine"
        # A page whose name resolves to this address (DNS rebinding) sends that name as the host.
        host = request.url.host or ""
        if host != "localhost" and ip_of(host) is None:
            return "ask by IP address or localhost"
        return None


def is_loopback(remote: str) -> bool:
    """Return whether an address belongs to this host."""
    address = ip_of(remote)
    mapped = getattr(address, "ipv4_mapped", None)
    return address is not None and (mapped or address).is_loopback


def _requester(request: web.Request, name: str | None, right: Right | None) -> Requester:
    peer = None if request.transport is None else request.transport.get_extra_info("peername")
    return Requester(None if name is None else f"Token:{name}", "http", f"{peer[0]}:{peer[1]}" if peer else "", LISTENER, right)


def _is_own_origin(request: web.Request) -> bool:
    origin = request.headers.get("Origin")
    return origin is None or origin == f"{request.scheme}://{request.host}"
