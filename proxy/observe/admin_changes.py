"""Pages of the admin port about stored quotas: describe, explain, alter, switches, pacing, and the audit log."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from proxy.observe.admin_access import Access
from proxy.observe.explain import NoWorkerError, explain
from proxy.observe.page_source import PageSource, source_of
from proxy.observe.pages import json_page, number_in
from proxy.observe.quota_changes import Change, Entry, body_of
from proxy.observe.state import ProxyState
from proxy.quota_admin.audit.log import AuditLog
from proxy.quota_admin.service import NOT_CONTROLLER, Administration
from quota.admin.messages import (
    CLIENT_ID,
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    IP,
    USER,
    AdminError,
    Alteration,
    Component,
    EntityKey,
    MatchType,
    Op,
    Result,
)
from quota.entity import DEFAULT

HISTORY_LINES_MAX: Final = 10_000
HISTORY_LINES: Final = 100
_STATUS: Final = {CLUSTER_AUTHORIZATION_FAILED: 403, INVALID_REQUEST: 400, NOT_CONTROLLER: 503}


class _Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    mode: str | None


class _Pacing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    pacing: str | None


class ChangesPages:
    """Translates between HTTP with JSON and the quota administration."""

    def __init__(self, shown: ProxyState | PageSource, administration: Administration, audit: AuditLog, access: Access) -> None:
        self._source = source_of(shown)
        self._administration = administration
        self._audit = audit
        self._access = access

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Serve the pages."""
        router.add_get("/admin/quotas", self._describe)
        router.add_post("/admin/quotas", self._alter)
        router.add_get("/admin/switches", self._switches)
        router.add_post("/admin/switches", self._switch)
        router.add_get("/admin/pacing", self._pacing)
        router.add_post("/admin/pacing", self._pace)
        router.add_get("/admin/history", self._history)
        router.add_get("/admin/history/verify", self._verify)
        router.add_get("/explain", self._explain)

    async def _describe(self, request: web.Request) -> web.Response:
        requester = self._access.reader(request)
        components = [_component(kind, name) for kind, name in request.query.items() if kind in (USER, CLIENT_ID, IP)]
        found = await self._administration.describe_many(requester, components, strict=bool(components))
        if found.entries is None:
            return json_page({"error": found.error_message or "denied"}, status=_STATUS.get(found.error_code, 500))
        return web.Response(body=await asyncio.to_thread(_quotas_page, found.entries), content_type="application/json")

    async def _alter(self, request: web.Request) -> web.Response:
        requester = self._access.writer(request)
        asked = await body_of(request, Change)
        alterations = [_alteration(entry) for entry in asked.entries]
        results = await self._administration.alter(requester, alterations, validate_only=asked.validate_only)
        is_denied = bool(alterations) and not self._administration.may_alter(requester)
        return json_page({"results": [_result(result) for result in results]}, status=403 if is_denied else 200)

    async def _pacing(self, request: web.Request) -> web.Response:
        self._access.reader(request)
        return json_page({"pacing": dict(self._administration.pacing)})

    async def _pace(self, request: web.Request) -> web.Response:
        requester = self._access.writer(request)
        asked = await body_of(request, _Pacing)
        try:
            await self._administration.pace(requester, asked.target, asked.pacing)
        except AdminError as error:
            return _refusal(error)
        return json_page({"pacing": dict(self._administration.pacing)})

    async def _switches(self, request: web.Request) -> web.Response:
        self._access.reader(request)
        return json_page({"switches": dict(self._administration.switches)})

    async def _switch(self, request: web.Request) -> web.Response:
        requester = self._access.writer(request)
        asked = await body_of(request, _Switch)
        try:
            await self._administration.switch(requester, asked.target, asked.mode)
        except AdminError as error:
            return _refusal(error)
        return json_page({"switches": dict(self._administration.switches)})

    async def _explain(self, request: web.Request) -> web.Response:
        self._access.reader(request)
        user, client_id, ip = (request.query.get(kind) for kind in (USER, CLIENT_ID, IP))
        if (ip is None) == (user is None and client_id is None):
            raise web.HTTPBadRequest(reason="ask for user, client-id or both, or for an ip alone: /explain?user=NAME&client-id=NAME")
        where = (request.query.get("listener", ""), request.query.get("address", ""))
        try:
            return json_page(await explain(self._source, self._administration.quotas, user, client_id, ip, *where))
        except NoWorkerError:
            raise web.HTTPServiceUnavailable(reason="no worker answers") from None

    async def _history(self, request: web.Request) -> web.Response:
        self._access.reader(request)
        limit = min(number_in(request, "limit", HISTORY_LINES), HISTORY_LINES_MAX)
        before = number_in(request, "before", 0) or None
        lines = await self._audit.history_lines(limit=limit, before=before, after=number_in(request, "after", 0))
        return web.Response(body=b'{"lines":[' + b",".join(lines) + b"]}", content_type="application/json")

    async def _verify(self, request: web.Request) -> web.Response:
        self._access.reader(request)
        verdict = await self._audit.verify()
        page = {"lines": verdict.lines, "first_seq": verdict.first_seq, "last": verdict.last._asdict(), "problems": verdict.problems}
        return json_page(page)


def _refusal(error: AdminError) -> web.Response:
    return json_page({"error": error.message, "error_code": error.code}, status=_STATUS.get(error.code, 500))


def _quotas_page(entries: Mapping[EntityKey, Mapping[str, float]]) -> bytes:
    """Return the page, encoded entity by entity: encoding thousands in one call would block the event loop's thread."""
    parts = [json.dumps({"entity": dict(entity), "values": _values(values)}) for entity, values in entries.items()]
    return f'{{"quotas": [{", ".join(parts)}]}}'.encode()


def _values(values: Mapping[str, float]) -> dict[str, float | str]:
    return {key: value if math.isfinite(value) else str(value) for key, value in values.items()}


def _component(kind: str, name: str) -> Component:
    if name == DEFAULT:
        return Component(kind, MatchType.DEFAULT, None)
    return Component(kind, MatchType.EXACT, name)


def _alteration(entry: Entry) -> Alteration:
    ops = [Op(key, 0.0 if value is None else value, value is None) for key, value in entry.ops.items()]
    return Alteration(tuple(entry.entity.items()), ops)


def _result(result: Result) -> Mapping[str, Any]:
    return {"entity": dict(result.entity), "error_code": result.error_code, "error": result.error_message}
