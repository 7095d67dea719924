"""The HTTP server of the admin port: the live page, metrics, health, live quotas and connections, and changes of stored quotas.

`admin_access` has the access rules.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from proxy.base.errors import StartError
from proxy.base.host_port import HostPort
from proxy.observe.admin_access import Access, is_loopback
from proxy.observe.admin_changes import ChangesPages
from proxy.observe.fleet import NO_FLEET, fleet_check, fleet_page
from proxy.observe.health import Health
from proxy.observe.live.pages import LivePages, StoredQuotas
from proxy.observe.metrics.shared import SHARED_MS, SharedMetrics
from proxy.observe.page_source import PageSource, source_of
from proxy.observe.pages import SAFE_HEADERS, json_page, limit_in, number_in
from proxy.observe.rows.group_rows import Cursor, CursorError
from proxy.observe.state import ProxyState
from proxy.observe.tokens import Tokens
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.status import IpRate
from proxy.tls.keeper import ContextKeeper

GROUPS_SHOWN_MAX: Final = 1_000
"""Maximum on a page of /quotas."""
CONNECTIONS_SHOWN_MAX: Final = 1_000
"""Maximum on a page of /connections."""
IPS_SHOWN_MAX: Final = 100
PAGES: Final = "/ /metrics /healthz /readyz /quotas /connections /fleet"
ADMIN_PAGES: Final = "/explain /admin/quotas /admin/switches /admin/pacing /admin/history /admin/history/verify"
_KEEP_ALIVE_SECONDS: Final = 15.0
_BODY_BYTES_MAX: Final = 1024 * 1024
_BACKLOG: Final = 32


class AdminHttp:
    """Serves the admin port on the event loop on which it is started; pages are made in a thread.

    Args:
        shown: the source of pages: this process, or workers.
        address: host and port; port 0 takes any free one.
        open_quotas: whether other hosts may see /quotas, /connections and /fleet when there are no tokens.
        open_names: whether /metrics always names clients, not only for this host and holders of a token.
        tokens: tokens that allow reading more, and changing quotas.
        changes: makes the pages about stored quotas; None: there are none.
        stored: stored quotas for the live page; None: it shows none.
        tls: the certificate; None: plain HTTP.
        is_local: whether an address belongs to this host.
    """

    def __init__(
        self,
        shown: ProxyState | PageSource,
        address: HostPort,
        *,
        lag: LoopLag,
        open_quotas: bool = False,
        open_names: bool = False,
        tokens: Tokens | None = None,
        changes: Callable[[Access], ChangesPages] | None = None,
        stored: StoredQuotas | None = None,
        tls: ContextKeeper | None = None,
        is_local: Callable[[str], bool] = is_loopback,
    ) -> None:
        self._source = source_of(shown)
        self._control = self._source.control
        self._address = address
        self._access = Access(tokens or Tokens(), open_quotas=open_quotas, open_names=open_names, is_local=is_local)
        self._changes = None if changes is None else changes(self._access)
        self._live = LivePages(self._source, self._access, lag, stored)
        self._tls = tls
        self._metrics = SharedMetrics(self._source, lag)
        self._health = Health()
        self._one_at_a_time = asyncio.Lock()
        self._ips: Sequence[IpRate] = ()
        self._ips_ms = -SHARED_MS
        self._runner: web.AppRunner | None = None
        self._listening: list[asyncio.Server] = []

    async def start(self, sockets: Sequence[socket.socket] = ()) -> HostPort:
        """Listen; return the bound address.

        Args:
            sockets: listening sockets of this address, which belong to this object from now on; none: the address is bound.

        Raises:
            StartError: the address cannot be bound.
        """
        self._runner = web.AppRunner(self._application(), access_log=None, keepalive_timeout=_KEEP_ALIVE_SECONDS, shutdown_timeout=1.0)
        await self._runner.setup()
        server, loop, tls = self._runner.server, asyncio.get_running_loop(), self._context()
        assert server is not None
        try:
            for sock in sockets:
                self._listening.append(await loop.create_server(server, sock=sock, backlog=_BACKLOG, ssl=tls))
            if not sockets:
                host, port = self._address
                self._listening.append(await loop.create_server(server, host, port, backlog=_BACKLOG, ssl=tls))
        except OSError as error:
            await self.stop()
            raise StartError(f"admin.address: {self._address} cannot be bound: {_reason(error)}; choose another port") from None
        self._live.start()
        return HostPort(self._address.host, self._listening[0].sockets[0].getsockname()[1])

    def duplicates(self) -> list[socket.socket]:
        """Return duplicates of the listening sockets: after `stop`, clients wait in their queues for another process."""
        return [socket.socket(fileno=os.dup(sock.fileno())) for listening in self._listening for sock in listening.sockets]

    async def stop(self) -> None:
        """Stop listening; requests under way get a second."""
        while self._listening:
            self._listening.pop().close()
        await self._live.stop()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guard], client_max_size=_BODY_BYTES_MAX)
        application.router.add_get("/metrics", self._get_metrics)
        application.router.add_get("/healthz", self._get_healthz)
        application.router.add_get("/readyz", self._get_readyz)
        application.router.add_get("/quotas", self._get_quotas)
        application.router.add_get("/connections", self._get_connections)
        application.router.add_get("/fleet", self._get_fleet)
        if self._changes is not None:
            self._changes.add_to(application.router)
        self._live.add_to(application.router)
        return application

    def _context(self) -> ssl.SSLContext | None:
        """Return one context that passes every handshake to the newest one."""
        if self._tls is None:
            return None
        keeper, context = self._tls, self._tls.context

        def newest(tls: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            tls.context = keeper.context

        context.sni_callback = newest
        return context

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            response = self._not_found(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.reason}\n", headers=_allowed(error))
        for name, value in SAFE_HEADERS.items():
            response.headers.setdefault(name, value)  # the live page has a policy of its own
        return response

    def _not_found(self, request: web.Request) -> web.Response:
        """Return 404, for a request without rights as well, so that it does not learn which pages exist."""
        try:
            self._access.reader(request, can_be_opened=True)
        except web.HTTPForbidden as error:
            return web.Response(status=error.status, text=f"{error.reason}\n")
        return web.Response(status=404, text=f"pages: {PAGES}{'' if self._changes is None else ' ' + ADMIN_PAGES}\n")

    async def _get_metrics(self, request: web.Request) -> web.Response:
        content_type, page = await self._metrics.get(with_names=self._access.sees_names(request))
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def _get_healthz(self, _: web.Request) -> web.Response:
        complaint = self._health.complaint((await self._source.health_inputs()).internal_errors, self._control.now_ms())
        return web.Response(status=200 if complaint is None else 503, text=f"{complaint or 'ok'}\n")

    async def _get_readyz(self, request: web.Request) -> web.Response:
        checks = [*self._control.readiness(), *(await self._source.health_inputs()).checks]
        fleet = self._control.fleet()
        if fleet is not None:
            checks.append(fleet_check(fleet))
        ready = all(check.ok for check in checks if check.required)
        state = "not ready" if not ready else "ready" if all(check.ok for check in checks) else "degraded"
        logins = [login._asdict() for login in self._control.logins()]
        if not self._access.is_known(request):  # details contain names: of users in the quota file, of brokers
            checks = [check._replace(detail="") for check in checks]
            logins = [{**login, "detail": ""} for login in logins]
        page = {"ready": ready, "state": state, "checks": [check._asdict() for check in checks], "logins": logins}
        return json_page(page, status=200 if ready else 503)

    async def _get_quotas(self, request: web.Request) -> web.Response:
        self._access.reader(request, can_be_opened=True)
        limit, after = limit_in(request, GROUPS_SHOWN_MAX), _cursor_in(request)
        async with self._one_at_a_time:
            page = await self._source.quotas_page(after, limit)
        return web.Response(body=page, content_type="application/json")

    async def _get_connections(self, request: web.Request) -> web.Response:
        self._access.reader(request, can_be_opened=True)
        limit, after = limit_in(request, CONNECTIONS_SHOWN_MAX), number_in(request, "after", 0)
        async with self._one_at_a_time:
            admission = self._control.admission()
            listeners = [_finite(listener._asdict()) for listener in admission.listeners]
            head = {"held": admission.held, "listeners": listeners, "ips": [ip.row() for ip in self._busiest_ips()]}
            page = await self._source.connections_page(head, after, limit)
        return web.Response(body=page, content_type="application/json")

    async def _get_fleet(self, request: web.Request) -> web.Response:
        self._access.reader(request, can_be_opened=True)
        report = self._control.fleet()
        if report is None:
            return web.Response(status=404, text=f"{NO_FLEET}\n")
        return json_page(fleet_page(report, self._control.wall_time_s()))

    def _busiest_ips(self) -> Sequence[IpRate]:
        """Return the addresses of less than a second ago: computing their rates takes some milliseconds on the event loop."""
        now_ms = self._control.now_ms()
        if now_ms - self._ips_ms >= SHARED_MS:
            self._ips_ms, self._ips = now_ms, self._control.busiest_ips(IPS_SHOWN_MAX)
        return self._ips


def _cursor_in(request: web.Request) -> Cursor | None:
    text = request.query.get("after")
    try:
        return None if text is None else Cursor.read(text)
    except CursorError:
        raise web.HTTPBadRequest(reason="after must be the value of `next` from the previous page") from None


def _reason(error: OSError) -> str:
    return str(error) if error.errno is None else os.strerror(error.errno)  # uvloop's own text repeats the address


def _allowed(error: web.HTTPException) -> dict[str, str]:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}


def _finite(page: dict[str, Any]) -> dict[str, Any]:
    """Return `page` with null where there is no number."""
    return {key: None if value != value else value for key, value in page.items()}
