"""An admin port that can change quotas, the proxy behind it, and a client of it."""

import json
import ssl
from pathlib import Path
from typing import Any, Literal, Self

import aiohttp
import pytest

from proxy.base.host_port import HostPort
from proxy.config.model import Metering
from proxy.config.sections.admin import AdminTls, AdminToken
from proxy.observe.admin_access import is_loopback
from proxy.observe.admin_changes import ChangesPages
from proxy.observe.admin_http import AdminHttp
from proxy.observe.live.pages import StoredQuotas
from proxy.observe.live.what_if import WhatIf
from proxy.observe.tokens import Tokens
from proxy.observe.workers.many_workers import ManyWorkers
from proxy.quota_admin.audit.log import AuditLog
from proxy.quota_admin.authorizer import Authorizer, Rules
from proxy.quota_admin.service import Administration
from proxy.quota_store.memory import MemoryStore
from proxy.quota_store.store import Origin, StoreContent
from proxy.telemetry.counters import AdministrationCounts
from proxy.telemetry.loop_lag import LoopLag
from proxy.tls.keeper import ContextKeeper
from tests.support.memory.proxy_state import FakeState, busy_state
from tests.support.tls.certificates import Authority

READER, WRITER = "reader-0123456789", "writer-0123456789"


class ChangingPort:
    """An admin port, its proxy and a client of it.

    `elsewhere`: the client seems to be on another machine; `workers`: replaces the workers shown.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tokens: bool = True,
        tls: bool = False,
        open_quotas: bool = False,
        open_names: bool = False,
        elsewhere: bool = False,
        workers: ManyWorkers | None = None,
    ) -> None:
        self.state: FakeState = busy_state()
        shown = workers or self.state
        self.store = MemoryStore(self._on_content, now_ms=lambda: 0, wall_time_s=lambda: 0.0)
        self.audit = AuditLog(None, wall_time_s=lambda: 1_700_000_000.0)
        self.counts = AdministrationCounts()
        self.administration = Administration(self.store, Authorizer(Rules()), self.audit, self.counts, now_ms=lambda: 0)
        self._on_content(self.store.content, "start")
        self.tokens = [_token(folder, "ro", "read", READER), _token(folder, "ops", "write", WRITER)] if tokens else []
        self.held = Tokens(self.tokens)
        self.ca: ssl.SSLContext | None = None
        keeper = None
        if tls:
            authority = Authority(folder)
            own = authority.issue("admin", hosts=("127.0.0.1",))
            settings = AdminTls(certificate=own.certificate, key=own.key)
            keeper = ContextKeeper("admin", settings.files(), settings.context_of)
            self.ca = ssl.create_default_context(cafile=authority.file)
        self._admin = AdminHttp(
            shown,
            HostPort("127.0.0.1", 0),
            lag=LoopLag(),
            open_quotas=open_quotas,
            open_names=open_names,
            tokens=self.held,
            changes=lambda access: ChangesPages(shown, self.administration, self.audit, access),
            stored=StoredQuotas(lambda: self.administration.quotas, self.audit, WhatIf(Metering)),
            tls=keeper,
            is_local=(lambda _address: False) if elsewhere else is_loopback,
        )
        self.address = HostPort("", 0)
        self.session: aiohttp.ClientSession

    def _on_content(self, content: StoreContent, origin: Origin) -> None:
        self.administration.content_arrived(content, origin)

    async def __aenter__(self) -> Self:
        self.address = await self._admin.start()
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self._admin.stop()

    async def ask(self, path: str, body: object = None, token: str | None = None, **headers: str) -> tuple[int, Any]:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        method = "GET" if body is None else "POST"
        url = f"http{'s' if self.ca else ''}://{self.address}{path}"
        async with self.session.request(method, url, json=body, headers=headers, ssl=self.ca or True) as response:
            assert response.headers["Cache-Control"] == "no-store"
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text, parse_constant=pytest.fail) if is_json else text


def _token(folder: Path, name: str, role: Literal["read", "write"], text: str) -> AdminToken:
    path = folder / f"{name}.token"
    path.write_text(text + "\n")
    path.chmod(0o600)
    return AdminToken(name=name, file=path, role=role)
