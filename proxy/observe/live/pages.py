"""The routes of the live page: its files, the stream of events, one group, its history, and what-if."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from aiohttp import web

from proxy.observe.admin_access import Access
from proxy.observe.live.feed import LiveFeed, TooManyViewersError
from proxy.observe.live.files import PAGE, POLICY, UiFiles
from proxy.observe.live.group_page import Quotas, group_page, levels_of, line_that_set, shown_points
from proxy.observe.live.history import POINTS
from proxy.observe.live.limits import VIEWERS_MAX
from proxy.observe.live.what_if import NoWhatIfError, WhatIf
from proxy.observe.page_source import PageSource
from proxy.observe.pages import SAFE_HEADERS, json_page, number_in
from proxy.observe.quota_changes import Change, after_changes, body_of
from proxy.observe.rows.client_groups import merged_group
from proxy.observe.rows.group_rows import Cursor
from proxy.quota_admin.audit.log import AuditLog
from proxy.telemetry.loop_lag import LoopLag

UNREAD_S: Final = 20.0
"""A viewer that takes longer to read an event is disconnected."""
SOCKET_BYTES: Final = 128 * 1024
"""Send buffer of a viewer's socket: without a limit the kernel keeps megabytes for a viewer that does not read."""
PIECE_BYTES: Final = 32 * 1024
"""An event is written in pieces, so that the process keeps one copy of it for all viewers."""
POINTS_OF_LIST: Final = 60
GROUPS_ASKED_MAX: Final = 100
AUDIT_LINES_EXAMINED: Final = 10_000


class StoredQuotas(NamedTuple):
    """What the pages need of stored quotas."""

    quotas: Callable[[], Quotas]
    audit: AuditLog
    what_if: WhatIf


class LivePages:
    """Serves the live page.

    Args:
        source: the running proxy.
        access: decides whether a request is allowed.
        lag: lag of this process's event loop.
        stored: None: there are no stored quotas.
    """

    def __init__(self, source: PageSource, access: Access, lag: LoopLag, stored: StoredQuotas | None) -> None:
        self._source = source
        self._access = access
        self._stored = stored
        self._files = UiFiles()
        self.feed = LiveFeed(source, lag)
        self._task: asyncio.Task[None] | None = None
        self._streams: set[asyncio.Task[Any]] = set()

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Serve the pages."""
        router.add_get("/", self._page)
        router.add_get("/ui/events", self._events)
        router.add_get("/ui/session", self._session)
        router.add_get("/ui/group", self._group)
        router.add_get("/ui/points", self._points)
        if self._stored is not None:
            router.add_post("/ui/what-if", self._what_if)
        router.add_get("/ui/{name:.+}", self._file)

    def start(self) -> None:
        """Begin with the history."""
        self._task = asyncio.create_task(self.feed.run())

    async def stop(self) -> None:
        """End the history, the streams of viewers, and a what-if."""
        if self._stored is not None:
            self._stored.what_if.close()
        tasks = [*self._streams, *([] if self._task is None else [self._task])]
        self._task = None
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await task

    async def _page(self, _: web.Request) -> web.Response:
        return await self._ui_file(PAGE)

    async def _file(self, request: web.Request) -> web.Response:
        return await self._ui_file(request.match_info["name"])

    async def _ui_file(self, name: str) -> web.Response:
        found = await asyncio.to_thread(self._files.get, name)
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found.body, content_type=found.content_type, charset="utf-8", headers={"Content-Security-Policy": POLICY})

    async def _session(self, request: web.Request) -> web.Response:
        """Say what the holder of the token may do."""
        requester = self._access.reader(request, can_be_opened=True)
        return json_page({"principal": requester.principal, "can_write": requester.right == "write" and self._stored is not None})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self._access.reader(request, can_be_opened=True)
        self._access.refuse_other_site(request)
        try:
            viewer = self.feed.join()
        except TooManyViewersError:
            raise web.HTTPServiceUnavailable(reason=f"{VIEWERS_MAX} viewers watch already; close one of them") from None
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        try:
            await _prepare(request, response)
            while True:
                event = await viewer.next_event()
                self._access.reader(request, can_be_opened=True)  # the token may have been withdrawn meanwhile
                async with asyncio.timeout(UNREAD_S):
                    await _send(response, event)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except (ConnectionError, web.HTTPForbidden):
            pass  # the viewer has gone, or must go
        finally:
            self._streams.discard(task)
            viewer.leave()
        response.force_close()
        return response

    async def _group(self, request: web.Request) -> web.Response:
        self._access.reader(request)
        place = self._place(number_in(request, "id", 0))
        found = await self._source.group_answers(place)
        if not found:
            raise web.HTTPNotFound
        now_ms, history = self._source.control.now_ms(), self.feed.history
        history.look_at(place, now_ms)
        group = merged_group(found)
        page = group_page(group, history.points(place, POINTS), history.last_ms, now_ms)
        stored = self._stored
        levels = [] if stored is None else levels_of(group, stored.quotas())
        winner = next((level["entity"] for level in levels if level["wins"]), None)
        set_by = None
        if stored is not None and winner is not None:
            lines = await stored.audit.history_lines(limit=AUDIT_LINES_EXAMINED)
            set_by = await asyncio.to_thread(line_that_set, lines, winner, page["key"])
        return json_page({**page, "levels": levels, "set_by": set_by})

    async def _points(self, request: web.Request) -> web.Response:
        """Return the history of some groups, for the small charts of a list, and keep one from now on."""
        self._access.reader(request, can_be_opened=True)
        numbers = request.query.get("ids", "").split(",")[:GROUPS_ASKED_MAX]
        places = {number: self.feed.table.place_of(int(number)) for number in numbers if number.isascii() and number.isdecimal()}
        history, now_ms = self.feed.history, self._source.control.now_ms()
        for place in places.values():
            if place is not None:
                history.look_at(place, now_ms)
        points: Mapping[str, Any] = {
            number: shown_points(history.points(place, POINTS_OF_LIST)) for number, place in places.items() if place is not None
        }
        return json_page({"points": points, "now_ms": now_ms, "last_point_ms": history.last_ms})

    async def _what_if(self, request: web.Request) -> web.Response:
        """Say what a change would have meant; a change itself is made at /admin/quotas."""
        requester = self._access.writer(request)
        if requester.right != "write":
            raise web.HTTPForbidden(reason='a what-if needs a token with role = "write"')
        stored = self._stored
        assert stored is not None
        change = await body_of(request, Change)
        try:
            effect = await stored.what_if.effect_of(after_changes(stored.quotas(), change.entries))
        except NoWhatIfError as unknown:
            return json_page({"effect": None, "reason": str(unknown)})
        return json_page({"effect": effect, "reason": None})

    def _place(self, number: int) -> Cursor:
        place = self.feed.table.place_of(number)
        if place is None:
            raise web.HTTPNotFound
        return place


async def _prepare(request: web.Request, response: web.StreamResponse) -> None:
    """Send the head of the response, with small buffers for what follows."""
    response.headers.update(SAFE_HEADERS)
    await response.prepare(request)
    transport = request.transport
    if transport is not None:
        transport.set_write_buffer_limits(high=PIECE_BYTES)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)


async def _send(response: web.StreamResponse, event: bytes) -> None:
    for begin in range(0, len(event), PIECE_BYTES):
        await response.write(event[begin : begin + PIECE_BYTES])
