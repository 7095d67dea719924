"""One client connection and its broker connection, as far as decisions go."""

from __future__ import annotations

from collections import deque

from protocol.api_keys import API_VERSIONS, MAX_VERSIONS, ApiKey, Treatment
from protocol.errors import RefusedApiError
from protocol.limits import MAX_REQUEST_BYTES
from protocol.messages.api_versions import fallback_response
from protocol.request_head import RequestHead
from proxy.counters import Counters, UsageTable
from proxy.session.attention import Attention
from proxy.session.debt import Debt
from proxy.session.enforcement import Enforcement, Mode
from proxy.session.fetch_gate import FetchGate
from proxy.session.heads_met import HeadsMet
from proxy.session.known_head import ANSWER, FETCH, NO_ACK, PASS, PRODUCE, KnownHead
from proxy.session.quota_scope import ClientQuota, QuotaScope
from proxy.session.request_side import HEAD_BYTES, InFlight, RequestSide
from proxy.session.response_side import ResponseSide
from proxy.session.rewrite import Rewriter
from quota.entity import ANONYMOUS, DEFAULT, KafkaPrincipal

CLIENTS_MAX = 16


class SessionSettings:
    """What all sessions of a process share; a reload changes it in place."""

    __slots__ = ("counters", "empty_client_id_is_default", "enforcement", "frame_bytes_max", "heads_met", "unknown_apis_pass", "usages")

    def __init__(self, enforcement: Enforcement, usages: UsageTable, counters: Counters) -> None:
        self.enforcement = enforcement
        self.usages = usages
        self.counters = counters
        self.empty_client_id_is_default = True
        self.unknown_apis_pass = False
        self.heads_met = HeadsMet()
        self.frame_bytes_max = MAX_REQUEST_BYTES


class Session:
    """Bytes go in at `requests.scan` and `responses.scan`, what may leave comes out."""

    __slots__ = (
        "_clients",
        "_rewriter",
        "_scope",
        "_settings",
        "attention",
        "debt",
        "gate",
        "in_flight",
        "principal",
        "requests",
        "responses",
    )

    def __init__(self, settings: SessionSettings, rewriter: Rewriter) -> None:
        self._settings = settings
        self._scope: QuotaScope | None = None
        self._rewriter = rewriter
        self._clients: dict[str, ClientQuota] = {}
        self.principal: KafkaPrincipal = ANONYMOUS
        self.in_flight: InFlight = deque()
        self.attention = Attention()
        self.debt = Debt(settings.enforcement, self.attention)
        self.gate = FetchGate()
        self.requests = RequestSide(
            self.in_flight,
            self.attention,
            self.debt,
            self.gate,
            settings.enforcement,
            self._resolve_head,
            _own_reply,
            settings.frame_bytes_max,
        )
        self.responses = ResponseSide(self.in_flight, self.attention, self.debt, self.gate, rewriter)

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Client-ids met on this connection."""
        return tuple(self._clients)

    @property
    def owes_own_reply(self) -> bool:
        """Whether a reply of our own waits for its turn."""
        return any(correlation_id is None for correlation_id, *_ in self.in_flight)

    def count_in(self, scope: QuotaScope) -> None:
        """Count in another scope from now on: the scope changed, or the broker's node id was learnt."""
        self._scope = scope
        for client in self._clients.values():
            client.move(scope)
        self.requests.forget_heads()  # they may know clients that were pushed out of the table

    def settings_changed(self, now_ms: int) -> None:
        """Obey new settings from the next request on; in `observe` nothing waits any longer."""
        self.requests.forget_heads()
        if self._settings.enforcement.mode is Mode.OBSERVE:
            self.debt.forgive()
            self.responses.hold_until_ms = min(self.responses.hold_until_ms, now_ms)
            self.requests.resume_at_ms = min(self.requests.resume_at_ms, now_ms)

    def close(self) -> None:
        """Leave no trace in the groups."""
        self.gate.abandon()

    def _resolve_head(self, data: bytes | bytearray, at: int, size: int) -> KnownHead | None:
        """Read a request head that this connection has not met before; None when more bytes are needed."""
        head = self._settings.heads_met.read(data, at, size, unknown_apis_pass=self._settings.unknown_apis_pass)
        if head is None:
            return None
        if head.api.treatment is Treatment.REFUSE:
            raise RefusedApiError(f"{head.api.name} v{head.api.version} is not for clients")
        known = KnownHead(
            head.api,
            self._client(head.client_id),
            _kind(head),
            self._rewriter.what_for(head.api),
            bytes(data[at + HEAD_BYTES : at + head.head_len]),
        )
        if known.kind == FETCH and head.max_bytes_at is not None:
            known.max_bytes, known.max_bytes_at = head.max_bytes, head.max_bytes_at
            known.min_bytes, known.min_bytes_at = head.min_bytes or 0, head.min_bytes_at or 0
        return known

    def _client(self, client_id: str | None) -> ClientQuota:
        name = client_id or ""
        if not name and self._settings.empty_client_id_is_default:
            name = DEFAULT
        client = self._clients.get(name)
        if client is None:
            assert self._scope is not None, "bytes before the broker is known"
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            usage = self._settings.usages.get(self.principal.name, name)
            client = self._clients[name] = ClientQuota(self._scope, self.principal, name, usage, self._settings.counters)
        return client


def _kind(head: RequestHead) -> int:
    api = head.api
    if api.key == ApiKey.PRODUCE:
        return NO_ACK if head.acks == 0 else PRODUCE
    if api.treatment is Treatment.OBSERVE:
        return FETCH
    if api.key == ApiKey.API_VERSIONS and api.index not in API_VERSIONS:
        return ANSWER  # from the future: the broker might understand it, we would not (KIP-511)
    return PASS


def _own_reply(correlation_id: int, _head: KnownHead) -> bytes:
    return fallback_response(correlation_id, MAX_VERSIONS[ApiKey.API_VERSIONS])
