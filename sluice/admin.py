"""Quotas of a cluster, read and changed from Python: `from sluice.admin import AsyncQuotaAdmin, QuotaAdmin`.

The calls are those of Kafka's Admin (KIP-546), and those of KIP-422 over `sluice.quota_targets`. They work against brokers, 2.6 and newer,
and against Sluice.

Source: Kafka 3.8 `Admin.describeClientQuotas`, `Admin.alterClientQuotas`, `ClientQuotaFilter`, `ClientQuotaAlteration`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError
from protocol.messages import client_quotas
from protocol.sasl.client import TokenRefusedError
from sluice.broker_client import BrokerClient, run_login, version_of
from sluice.client_quota_entity import CLIENT_ID as CLIENT_ID
from sluice.client_quota_entity import IP as IP
from sluice.client_quota_entity import USER as USER
from sluice.client_quota_entity import ClientQuotaEntity as ClientQuotaEntity
from sluice.connect_errors import connect_error
from sluice.login import Login
from sluice.quota_targets import QuotaLimit, QuotaTarget

_SESSION_SHARE: Final = 0.8
"""Share of a session's lifetime after which the client logs in again, since brokers close a connection whose session is over."""
_CLIENT_NAME: Final = "sluice-admin"
_NAMES: Final = {
    -1: "UNKNOWN_SERVER_ERROR",
    7: "REQUEST_TIMED_OUT",
    29: "TOPIC_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    35: "UNSUPPORTED_VERSION",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
}


class QuotaAdminError(Exception):
    """The cluster did not answer, or refused.

    Attributes:
        code: Kafka's error code; None without a response.
        message: the broker's message.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message if code is None else f"{_NAMES.get(code, f'error {code}')}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """One condition of a filter; `match_type` is 0 for exactly `match`, 1 for the default entity, 2 for any."""

    entity_type: str
    match_type: int
    match: str | None = None

    @classmethod
    def of_entity(cls, entity_type: str, name: str) -> Self:
        """Match exactly this name."""
        return cls(entity_type, 0, name)

    @classmethod
    def of_default_entity(cls, entity_type: str) -> Self:
        """Match the default entity."""
        return cls(entity_type, 1)

    @classmethod
    def of_entity_type(cls, entity_type: str) -> Self:
        """Match every name, and the default entity."""
        return cls(entity_type, 2)


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """The conditions that an entity has to meet. `strict`: it has no other types."""

    components: Sequence[ClientQuotaFilterComponent] = ()
    strict: bool = False

    @classmethod
    def all(cls) -> Self:
        """Match all entities."""
        return cls()

    @classmethod
    def contains(cls, components: Iterable[ClientQuotaFilterComponent]) -> Self:
        """Match entities that meet these conditions, whatever other types they have."""
        return cls(tuple(components))

    @classmethod
    def contains_only(cls, components: Iterable[ClientQuotaFilterComponent]) -> Self:
        """Match entities of exactly these types."""
        return cls(tuple(components), strict=True)


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """Changes of one entity: a value for each key, None to remove it."""

    entity: ClientQuotaEntity
    ops: Mapping[str, float | None] = field(default_factory=dict)


class AsyncQuotaAdmin:
    """An asynchronous context manager that tries one broker after another until one answers.

    Args:
        bootstrap_servers: `HOST:PORT`, comma-separated.
        ssl_context: for listeners with TLS.
        login: for listeners with SASL; `sluice.client_properties` reads both from Kafka's client.properties.
        timeout_ms: time limit of a call.
    """

    def __init__(
        self, bootstrap_servers: str, *, ssl_context: ssl.SSLContext | None = None, login: Login | None = None, timeout_ms: int = 30_000
    ) -> None:
        self._addresses = [_address(text) for text in bootstrap_servers.split(",") if text.strip()]
        if not self._addresses:
            raise ValueError("bootstrap_servers names no broker; write HOST:PORT")
        self._ssl = ssl_context
        self._login = login
        self._session_ends_s: float | None = None
        self._timeout_s = timeout_ms / 1_000
        self._client: BrokerClient | None = None
        self._versions: dict[int, int] = {}
        self._correlation_id = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the next call opens another one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def describe_client_quotas(self, wanted: ClientQuotaFilter | None = None) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Return the entities that match a filter, with their values; without a filter all.

        Raises:
            QuotaAdminError: no response, or the broker refuses the filter.
        """
        wanted = wanted or ClientQuotaFilter.all()
        components = [client_quotas.FilterComponent(one.entity_type, one.match_type, one.match) for one in wanted.components]

        def request(version: int, number: int) -> bytes:
            return client_quotas.describe_request(version, number, _CLIENT_NAME, components, strict=wanted.strict)

        version, frame = await self._ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
        answer = client_quotas.read_describe_answer(version, frame)
        if answer.error_code:
            raise QuotaAdminError(answer.error_message or "the broker gave no reason", answer.error_code)
        return {ClientQuotaEntity.of(dict(entry.entity)): dict(entry.values) for entry in answer.entries or []}

    async def alter_client_quotas(
        self, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool = False
    ) -> dict[ClientQuotaEntity, QuotaAdminError | None]:
        """Make changes; return a result for each entity, None for success.

        Raises:
            QuotaAdminError: no response; the changes may or may not have been made.
        """
        entries = [(one.entity.parts, [client_quotas.QuotaOp(*op) for op in one.ops.items()]) for one in alterations]

        def request(version: int, number: int) -> bytes:
            return client_quotas.alter_request(version, number, _CLIENT_NAME, entries, validate_only=validate_only)

        version, frame = await self._ask(ApiKey.ALTER_CLIENT_QUOTAS, request)
        return {
            ClientQuotaEntity.of(dict(entity)): QuotaAdminError(message or "the broker gave no reason", code) if code else None
            for entity, code, message in client_quotas.read_alter_answer(version, frame)
        }

    async def set_quotas(
        self, limits: Mapping[QuotaTarget, QuotaLimit], *, timeout_ms: int | None = None, validate_only: bool = False
    ) -> dict[QuotaTarget, QuotaAdminError | None]:
        """Set one limit of each target; its other limits stay. Return a result for each target, None for success.

        Raises:
            QuotaAdminError: no response; the changes may or may not have been made.
        """
        changes = {target: {limit.key: float(limit.value)} for target, limit in limits.items()}
        return await self._alter_targets(changes, timeout_ms, validate_only=validate_only)

    async def describe_quota(self, target: QuotaTarget, *, timeout_ms: int | None = None) -> list[QuotaLimit]:
        """Return the limits of a target, as whole numbers.

        Raises:
            QuotaAdminError: no response, or not authorized.
        """
        async with self._within(timeout_ms):
            return QuotaLimit.all_of(await self._values_of(target))

    async def delete_quotas(
        self, targets: Collection[QuotaTarget], *, timeout_ms: int | None = None, validate_only: bool = False
    ) -> dict[QuotaTarget, QuotaAdminError | None]:
        """Remove all limits of each target. Return a result for each target, None for success, also when there were none.

        Raises:
            QuotaAdminError: no response; the changes may or may not have been made.
        """
        async with self._within(timeout_ms):
            changes: dict[QuotaTarget, dict[str, float | None]] = {}
            for target in targets:
                changes[target] = dict.fromkeys(await self._values_of(target))
            return await self._alter_targets(changes, None, validate_only=validate_only)

    async def _alter_targets(
        self, changes: Mapping[QuotaTarget, Mapping[str, float | None]], timeout_ms: int | None, *, validate_only: bool
    ) -> dict[QuotaTarget, QuotaAdminError | None]:
        entities = {target: ClientQuotaEntity.of(target.entries) for target in changes}
        alterations = [ClientQuotaAlteration(entities[target], ops) for target, ops in changes.items()]
        async with self._within(timeout_ms):
            results = await self.alter_client_quotas(alterations, validate_only=validate_only)
        missing = QuotaAdminError("the broker's response has no result for it")
        return {target: results.get(entity, missing) for target, entity in entities.items()}

    async def _values_of(self, target: QuotaTarget) -> dict[str, float]:
        parts = target.entries.items()
        of_default, of_entity = ClientQuotaFilterComponent.of_default_entity, ClientQuotaFilterComponent.of_entity
        wanted = [of_default(kind) if name is None else of_entity(kind, name) for kind, name in parts]
        found = await self.describe_client_quotas(ClientQuotaFilter.contains_only(wanted))
        return found.get(ClientQuotaEntity.of(target.entries), {})

    @contextlib.asynccontextmanager
    async def _within(self, timeout_ms: int | None) -> AsyncIterator[None]:
        """Give up after this time; None: each request has its own time limit."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1_000):
                yield
        except TimeoutError as error:
            await self.close()
            raise QuotaAdminError(f"{self._where}: no answer in time") from error

    async def _ask(self, key: int, request: Callable[[int, int], bytes]) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._timeout_s):
                client = await self._connect()
                version = self._versions.get(key)
                if version is None:
                    raise QuotaAdminError("the broker is older than 2.6 and has no API for quotas")
                self._correlation_id += 1
                return version, await client.ask(request(version, self._correlation_id))
        except (OSError, asyncio.IncompleteReadError, ProtocolError, TokenRefusedError) as error:
            await self.close()
            reason = _reason(error)
            raise QuotaAdminError(f"{self._where}: {reason}") from error

    @property
    def _where(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._addresses)

    async def _connect(self) -> BrokerClient:
        if self._session_ends_s is not None and asyncio.get_running_loop().time() >= self._session_ends_s:
            await self.close()
        if self._client is not None:
            return self._client
        errors: list[str] = []
        for host, port in self._addresses:
            try:
                streams = await asyncio.open_connection(host, port, ssl=self._ssl)
            except OSError as error:
                errors.append(connect_error(error, tls=self._ssl is not None))
                continue
            client = self._client = BrokerClient(*streams, _CLIENT_NAME)
            ranges = await client.versions()
            for key in (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS):
                version = version_of(ranges, key, client_quotas.VERSIONS[::-1])
                if version is not None:
                    self._versions[key] = version
            await self._log_in(client)
            return client
        raise OSError("; ".join(errors))

    async def _log_in(self, client: BrokerClient) -> None:
        self._session_ends_s = None
        if self._login is None:
            return
        lifetime_ms = await run_login(client, self._login.steps(_CLIENT_NAME))
        if lifetime_ms:
            self._session_ends_s = asyncio.get_running_loop().time() + lifetime_ms * _SESSION_SHARE / 1_000


class QuotaAdmin:
    """The same calls for programs without an event loop; a context manager."""

    def __init__(
        self, bootstrap_servers: str, *, ssl_context: ssl.SSLContext | None = None, login: Login | None = None, timeout_ms: int = 30_000
    ) -> None:
        self._runner = asyncio.Runner()
        self._admin = AsyncQuotaAdmin(bootstrap_servers, ssl_context=ssl_context, login=login, timeout_ms=timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._runner.run(self._admin.close())
        self._runner.close()

    def describe_client_quotas(self, wanted: ClientQuotaFilter | None = None) -> dict[ClientQuotaEntity, dict[str, float]]:
        """See `AsyncQuotaAdmin.describe_client_quotas`."""
        return self._runner.run(self._admin.describe_client_quotas(wanted))

    def alter_client_quotas(
        self, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool = False
    ) -> dict[ClientQuotaEntity, QuotaAdminError | None]:
        """See `AsyncQuotaAdmin.alter_client_quotas`."""
        return self._runner.run(self._admin.alter_client_quotas(alterations, validate_only=validate_only))

    def set_quotas(
        self, limits: Mapping[QuotaTarget, QuotaLimit], *, timeout_ms: int | None = None, validate_only: bool = False
    ) -> dict[QuotaTarget, QuotaAdminError | None]:
        """See `AsyncQuotaAdmin.set_quotas`."""
        return self._runner.run(self._admin.set_quotas(limits, timeout_ms=timeout_ms, validate_only=validate_only))

    def describe_quota(self, target: QuotaTarget, *, timeout_ms: int | None = None) -> list[QuotaLimit]:
        """See `AsyncQuotaAdmin.describe_quota`."""
        return self._runner.run(self._admin.describe_quota(target, timeout_ms=timeout_ms))

    def delete_quotas(
        self, targets: Collection[QuotaTarget], *, timeout_ms: int | None = None, validate_only: bool = False
    ) -> dict[QuotaTarget, QuotaAdminError | None]:
        """See `AsyncQuotaAdmin.delete_quotas`."""
        return self._runner.run(self._admin.delete_quotas(targets, timeout_ms=timeout_ms, validate_only=validate_only))


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, asyncio.IncompleteReadError):
        return "the broker hung up; does this listener want TLS or a login?"
    return str(error) or type(error).__name__


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.strip().rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f'"{text.strip()}" is not the address of a broker; write HOST:PORT')
    return host.strip("[]"), int(port)
