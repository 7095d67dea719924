"""Resolves request heads to a client, its groups and the handling of the request; shared by all connections of the same kind."""

from __future__ import annotations

from typing import Final

from protocol.api_keys import API_VERSIONS, ApiKey, Treatment
from protocol.errors import ProtocolError, RefusedApiError
from protocol.limits import HEAD_BYTES
from protocol.primitives import Buffer
from protocol.request_head import RequestHead
from proxy.enforcement.quota_scope import ClientQuota, QuotaScope
from proxy.handler_time import VERSIONS_BEFORE_LOGIN, BrokerHandlerTime, work_of
from proxy.meter.usage import Place, UsageCell, api_class
from proxy.session.administered import CONFIG_KEYS, QUOTA_KEYS
from proxy.session.login.identity import is_unidentified
from proxy.session.login.login import LOGIN_KEYS, MAY_PRECEDE_LOGIN, Login
from proxy.session.mutations.charge import STRICT_SINCE
from proxy.session.mutations.filter import ControllerMutationFilter
from proxy.session.mutations.notes import MutationNotes
from proxy.session.request_context import (
    ADMIN,
    ANSWER,
    CONFIGS,
    FETCH,
    LOGIN,
    MUTATION,
    NO_ACK,
    PACED_FETCH,
    PACED_NO_ACK,
    PACED_PASS,
    PACED_PRODUCE,
    PASS,
    PREFIX_BYTES_MAX,
    PRODUCE,
    RequestContext,
)
from proxy.session.rewrite import Rewriter
from proxy.session.settings import SessionSettings
from quota.entity import ANONYMOUS, DEFAULT, KafkaPrincipal
from quota.groups.declared_groups import UNKNOWN_ORIGIN, Origin
from quota.maker import NO_MAKER, Maker
from quota.names import kept_name

CLIENT_IDS_MAX = 16
UNKNOWN_BROKER_TIMES = BrokerHandlerTime()
"""Used until the broker is known."""

COORDINATOR_KEYS: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)
_PACED: Final = {PASS: PACED_PASS, PRODUCE: PACED_PRODUCE, FETCH: PACED_FETCH, NO_ACK: PACED_NO_ACK}
NEVER_INHERITS: Final = MAY_PRECEDE_LOGIN | COORDINATOR_KEYS
"""Requests that do not take over a throttle of request time, since a client has to log in and to keep its membership."""


class RequestClassifier:
    """Resolves the request heads of one connection.

    A head depends on the kind of connection only: equal bytes of the same principal, on the same listener, to the
    same broker are one `RequestContext`. A thousand connections of one application then share few objects. The share of groups of clients
    without a known user is per address, so only those from one address are of one kind.
    """

    __slots__ = (
        "_counted_cell",
        "_rewriter",
        "_scope",
        "_settings",
        "broker_label",
        "broker_times",
        "client_ids",
        "here",
        "login",
        "meter",
        "number",
        "origin",
        "place",
        "principal",
    )

    def __init__(
        self,
        settings: SessionSettings,
        rewriter: Rewriter,
        number: int = 0,
        principal: KafkaPrincipal | None = ANONYMOUS,
        origin: Origin = UNKNOWN_ORIGIN,
        here: Maker = NO_MAKER,
    ) -> None:
        self._settings = settings
        self.meter = settings.meter
        self.number = number  # number of the connection, with which its decisions are metered
        self.place: Place | None = None  # where its usage is counted; None: not metered
        self._rewriter = rewriter
        self._scope: QuotaScope | None = None
        self._counted_cell: UsageCell | None = None  # where this connection is counted as open
        self.broker_label = ""  # empty: that of the scope
        self.broker_times = UNKNOWN_BROKER_TIMES
        self.login: Login | None = None
        self.origin = origin
        self.here = here  # the maker of the clients of this listener and address
        self.principal = principal  # None: unknown, and the connection has to end
        self.client_ids: tuple[str, ...] = ()  # of this connection, the first few

    def count_in(self, scope: QuotaScope) -> None:
        """Use another quota scope from now on."""
        self._scope = scope

    def resolve(self, data: Buffer, at: int, size: int) -> RequestContext | None:
        """Parse a request head that differs from the last one; None when more bytes are needed."""
        settings = self._settings
        head = settings.heads_met.read(data, at, size, unknown_apis_pass=settings.unknown_apis_pass)
        if head is None:
            return None
        if head.api.treatment is Treatment.REFUSE:
            raise RefusedApiError(f"{head.api.name} v{head.api.version} is not for clients")
        if self.login is not None:
            self.login.check(head.api)
        if self.principal is None:
            raise ProtocolError("the user of this client is not known", reason="principal_unknown")
        prefix = bytes(data[at + HEAD_BYTES : at + head.head_len])
        name = self._name(head.client_id)
        precedes_login = head.api.key == ApiKey.API_VERSIONS and self._precedes_login
        here = self.here if is_unidentified(self.principal) else None
        broker = self._scope, self.broker_label, self._rewriter, self.place
        key = (head.api.index, prefix, name, broker, self.principal, here, self.origin, precedes_login)
        is_long = len(prefix) > PREFIX_BYTES_MAX  # it is then neither cached nor hashed
        known = None if is_long else settings.known_heads.get(key)
        if known is None:
            known = self._make(head, name, prefix, precedes_login=precedes_login)
            if not is_long:
                settings.known_heads.add(key, known)
        if self._counted_cell is None and self.place is not None and self.meter is not None and head.api.key not in MAY_PRECEDE_LOGIN:
            self._counted_cell = self.meter.usage.opened(self.place, known.client.usage, self.principal, settings.usages.other)
        if len(self.client_ids) < CLIENT_IDS_MAX and (kept := kept_name(name)) not in self.client_ids:
            self.client_ids = (*self.client_ids, kept)
        return known

    @property
    def member(self) -> KafkaPrincipal | Maker | None:
        """The member of a paced group that the client is: its principal, or its address and listener while its user is not known."""
        return self.here if self.principal is None or is_unidentified(self.principal) else self.principal

    @property
    def paces(self) -> bool:
        """Whether any group may have a schedule."""
        return self._settings.paces

    def left(self) -> None:
        """The connection has ended."""
        if self._counted_cell is not None:
            self._counted_cell.connections_open -= 1
            self._counted_cell.is_dirty = True
            self._counted_cell = None

    def mutation_gate(self) -> ControllerMutationFilter:
        """Return a new filter for the requests of one connection that create or delete topics."""
        settings = self._settings
        notes = MutationNotes(self.meter, self.number)
        return ControllerMutationFilter(settings.known_sizes, self._rewriter.broker_max, notes)

    @property
    def _precedes_login(self) -> bool:
        """Whether this client has not logged in, at a broker that is known to require it."""
        login = self.login
        return login is not None and not login.has_succeeded and (login.required or self.broker_times.logs_in)

    def _make(self, head: RequestHead, name: str, prefix: bytes, *, precedes_login: bool) -> RequestContext:
        work = VERSIONS_BEFORE_LOGIN if precedes_login else work_of(head.api.key, head.acks)
        client = self._client(name)
        cell = None
        assert self.principal is not None
        if self.place is not None and self.meter is not None:
            others = self._settings.usages.other
            cell = self.meter.usage.cell(self.place, client.usage, self.principal, api_class(head.api.key), others)
        known = RequestContext(head.api, client, self._kind(head), self._rewriter.what_for(head.api), prefix, work, cell, self.broker_label)
        known.may_inherit = head.api.key not in NEVER_INHERITS
        if known.kind in (FETCH, PACED_FETCH):
            known.take_fetch_fields(head)
        return known

    def _name(self, client_id: str | None) -> str:
        """Return the client-id used for quotas."""
        return client_id or (DEFAULT if self._settings.empty_client_id_is_default else "")

    def _client(self, name: str) -> ClientQuota:
        assert self._scope is not None, "bytes before the broker is known"
        assert self.principal is not None
        settings = self._settings
        maker = self.here if is_unidentified(self.principal) else self.here.of_user(self.principal.name)
        usage = settings.usages.get(self.principal.name, name, maker.share)
        return ClientQuota(self._scope, self.principal, name, usage, settings.counters, settings.policy, self.origin, maker)

    def _kind(self, head: RequestHead) -> int:
        if self._settings.answers_quotas and head.api.key in QUOTA_KEYS:
            return ADMIN
        if self._settings.answers_quotas and head.api.key in CONFIG_KEYS:
            return CONFIGS
        kind = _kind(head)
        return _PACED.get(kind, kind) if self._settings.paces else kind


def _kind(head: RequestHead) -> int:
    api = head.api
    if api.key == ApiKey.PRODUCE:
        return NO_ACK if head.acks == 0 else PRODUCE
    if api.treatment is Treatment.OBSERVE:
        return FETCH
    if api.key in STRICT_SINCE:
        return MUTATION
    if api.key in LOGIN_KEYS:
        return LOGIN
    if api.key == ApiKey.API_VERSIONS and api.index not in API_VERSIONS:
        return ANSWER  # a newer version, which the broker may support and Sluice does not (KIP-511)
    return PASS
