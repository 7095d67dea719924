"""Requests from the broker, on the client's own connection, whether the client may read or change quotas.

Sluice answers in the broker's place, so the broker's check has to be requested: the same changes are sent to the broker with
`validate_only`. Without a login, without a response in time, or with an inconsistent one, the client is not allowed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.errors import BadResponseError, ProtocolError
from protocol.headers import response_header_len
from protocol.layout import layout_of, reading, skip_fields
from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages.client_quotas import DescribeAnswer, QuotaOp, alter_request, read_alter_answer, read_describe_answer
from protocol.messages.topic_changes import client_id_field
from protocol.primitives import INT16, INT32, with_length
from proxy.net.connection import Connection
from proxy.quota_admin.limits import too_large
from proxy.session.administered import CORRELATION_ID, Administered
from proxy.telemetry.counters import AdministrationCounts
from quota.admin.messages import CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, Alteration, EntityKey, Result, entity_key, shown

WAIT_S: Final = 10.0
DESCRIBE_CONFIGS: Final = 1 << 10
ALTER_CONFIGS: Final = 1 << 11
"""Bits of Kafka's operations in the field of authorized operations; the smallest int32 means that they are missing."""
_UNKNOWN_TYPE: Final = "Unhandled client quota entity type"
_METADATA_VERSION: Final = 8


class AuthorizationResult(NamedTuple):
    """The broker's response to alterations.

    Attributes:
        allows: whether the client may alter quotas.
        refused: entities that must not be changed, with the reason.
        right: the other alterations; all of them when the client may not alter quotas.
    """

    allows: bool
    refused: list[Result]
    right: list[Alteration]


class BrokerAuthority:
    """Requests authorization results from brokers.

    Attributes:
        on_trust: called with each new result of the authorizer probe.
        wait_s: longest wait for a broker's response; a client whose broker does not respond is not allowed.
    """

    def __init__(self, counts: AdministrationCounts, wait_s: float = WAIT_S) -> None:
        self._counts = counts
        self.wait_s = wait_s
        self.on_trust: Callable[[bool], None] = lambda _is_trusted: None

    @property
    def is_trusted(self) -> bool:
        """Whether a broker's permission can be trusted: an account without rights was refused, or none is configured."""
        return self._counts.authority_is_trusted

    @is_trusted.setter
    def is_trusted(self, value: bool) -> None:
        self._counts.authority_is_trusted = value
        self.on_trust(value)

    async def judge(self, connection: Connection, request: Administered, alterations: Sequence[Alteration]) -> AuthorizationResult:
        """Let the broker check alterations, without changing anything.

        Raises:
            ConnectionError: the connection has ended.
        """
        denied = AuthorizationResult(False, [], list(alterations))
        twice = _twice(alterations)
        asked = [one for one in alterations if one.entity not in twice and too_large(one, len(alterations)) is None]
        if not asked or not self._may_ask(connection):
            return denied
        if not _has(connection, ApiKey.ALTER_CLIENT_QUOTAS):
            return denied._replace(allows=await self._has_operation(connection, request, ALTER_CONFIGS))
        results = await self._probe(connection, request, asked)
        if results is None or any(one.error_code == CLUSTER_AUTHORIZATION_FAILED for one in results.values()):
            return denied
        refused = {entity: one for entity, one in results.items() if one.error_code}
        newer = {entity for entity, one in refused.items() if (one.error_message or "").startswith(_UNKNOWN_TYPE)}
        if newer and await self._has_operation(connection, request, ALTER_CONFIGS):  # IP entities do not exist before 2.8
            refused = {entity: one for entity, one in refused.items() if entity not in newer}
        refused |= {entity: Result(entity, INVALID_REQUEST, f"Ignoring duplicate entity {shown(entity)}") for entity in twice}
        return AuthorizationResult(True, list(refused.values()), [one for one in alterations if one.entity not in refused])

    async def judge_description(self, connection: Connection, request: Administered) -> DescribeAnswer | None:
        """Return the broker's response to a description, for its error code; None: it is not conclusive, so the client is not allowed.

        Raises:
            ConnectionError: the connection has ended.
        """
        if not self._may_ask(connection):
            return None
        if not _has(connection, ApiKey.DESCRIBE_CLIENT_QUOTAS):
            allows = await self._has_operation(connection, request, DESCRIBE_CONFIGS)
            return DescribeAnswer(0, None, []) if allows else None
        frame = request.frame[:RESPONSE_HEAD_BYTES] + INT32.pack(CORRELATION_ID) + request.frame[RESPONSE_HEAD_BYTES + 4 :]
        answer = await self._ask(connection, request.api.key, request.api.version, frame)
        try:
            return None if answer is None else read_describe_answer(request.api.version, answer)
        except ProtocolError:
            return None

    async def may_describe(self, connection: Connection, request: Administered) -> bool:
        """Whether the client may read quotas, without a description request of its own.

        Raises:
            ConnectionError: the connection has ended.
        """
        return self._may_ask(connection) and await self._has_operation(connection, request, DESCRIBE_CONFIGS)

    def _may_ask(self, connection: Connection) -> bool:
        """Whether the client has logged in. Otherwise the broker would authorize no user, or Sluice's own."""
        return self.is_trusted and connection.session.login.has_succeeded

    async def _probe(self, connection: Connection, request: Administered, asked: Sequence[Alteration]) -> dict[EntityKey, Result] | None:
        """Return the broker's result for each entity; None: the response does not match the request."""
        version = max(0, min(1, connection.session.broker_max(ApiKey.ALTER_CLIENT_QUOTAS)))
        entries = [(tuple(one.parts), [QuotaOp(op.key, None if op.remove else op.value) for op in one.ops]) for one in asked]
        client_id = (request.client_id or b"").decode("utf-8", "replace")
        frame = alter_request(version, CORRELATION_ID, client_id, entries, validate_only=True)
        answer = await self._ask(connection, ApiKey.ALTER_CLIENT_QUOTAS, version, frame)
        if answer is None:
            return None
        try:
            found = read_alter_answer(version, answer)
        except ProtocolError:
            return None
        results = {entity_key(one.entity): Result(entity_key(one.entity), one.error_code, one.error_message) for one in found}
        if len(found) != len(asked) or results.keys() != {one.entity for one in asked}:
            return None
        return results

    async def _has_operation(self, connection: Connection, request: Administered, operation: int) -> bool:
        """Whether an operation is among the client's authorized operations on the cluster."""
        header = INT32.pack(CORRELATION_ID) + client_id_field(request.client_id)
        if connection.session.broker_max(ApiKey.DESCRIBE_CLUSTER) >= 0:
            key, version, body = ApiKey.DESCRIBE_CLUSTER, 0, b"\x00\x01\x00"  # header without tags, include the operations, no tags
        else:
            key, version, body = ApiKey.METADATA, _METADATA_VERSION, INT32.pack(0) + b"\x00\x01\x00"  # no topics; create: no; cluster: yes
        frame = with_length(INT16.pack(key) + INT16.pack(version) + header + body)
        answer = await self._ask(connection, key, version, frame)
        try:
            found = 0 if answer is None else _authorized_operations(key, version, answer)
        except ProtocolError:
            return False
        return found > 0 and bool(found & operation)

    async def _ask(self, connection: Connection, key: int, version: int, frame: bytes) -> bytes | None:
        try:
            async with asyncio.timeout(self.wait_s):
                return await connection.ask(API_VERSIONS[key << 16 | version], frame)
        except TimeoutError:
            return None


def _twice(alterations: Sequence[Alteration]) -> set[EntityKey]:
    """Return the entities that occur twice or have a key twice."""
    times = Counter(one.entity for one in alterations)
    return {one.entity for one in alterations if times[one.entity] > 1 or len({op.key for op in one.ops}) < len(one.ops)}


def _has(connection: Connection, key: int) -> bool:
    """Whether the broker has an API; True while its versions are unknown, since a broker without the API refuses the request."""
    reports_versions = connection.session.broker_max(ApiKey.API_VERSIONS) >= 0
    return not reports_versions or connection.session.broker_max(key) >= 0


def _authorized_operations(key: int, version: int, frame: bytes) -> int:
    api = API_VERSIONS[key << 16 | version]
    layout = layout_of(key, "response", version)
    with reading():
        header_len = response_header_len(api, frame, 0)
        if header_len is None:
            raise BadResponseError("the frame ends inside its header")
        skip = skip_fields(layout.before("ClusterAuthorizedOperations"), flexible=layout.flexible)
        operations: int = INT32.unpack_from(frame, skip(frame, LENGTH_BYTES + header_len))[0]
    return operations
