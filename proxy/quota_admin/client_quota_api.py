"""Answers requests for quotas instead of the broker: decodes a request, calls the administration, and encodes its result.

If the broker is the authority, it is asked first on the client's own connection, so with the client's rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from protocol.api_keys import ApiKey
from protocol.errors import BadRequestError
from protocol.messages.client_quotas import (
    AlterRequest,
    AlterResult,
    DescribeAnswer,
    DescribeRequest,
    QuotaEntry,
    alter_answer,
    describe_answer,
)
from protocol.messages.config_resources import (
    QUOTA_TYPES,
    ConfigRequest,
    ConfigResource,
    answer_of,
    cut_config_request,
    described_result,
    joined_answer,
    plain_result,
)
from proxy.base.offload import offload
from proxy.net.connection import Connection
from proxy.quota_admin.authorizer import DENIED
from proxy.quota_admin.broker_authority import BrokerAuthority
from proxy.quota_admin.quota_resources import alteration_of, configs_of, entity_of, filter_of
from proxy.quota_admin.requester import Requester, Right
from proxy.session.administered import CORRELATION_ID, Administered, read_body
from quota.admin.messages import CLUSTER_AUTHORIZATION_FAILED, AdminError, Alteration, Component, Description, Op, Result

if TYPE_CHECKING:
    from proxy.config.sections.admin import Authority

RESOURCES_MAX: Final = 1_000
"""Maximum number of users and clients in one configuration request, since each is searched among all quotas."""
CONFIG_BYTES: Final = 32
"""Bytes of a configuration response that count as one item of work."""


class QuotaAdministration(Protocol):
    """The methods of `Administration` that the APIs need; it may be in another process."""

    @property
    def authority(self) -> Authority:
        """The configured authority."""

    def may_alter(self, requester: Requester, broker_allows: bool | None = None) -> bool:
        """Whether a requester may change quotas."""

    def may_describe(self, requester: Requester, broker_allows: bool | None = None) -> bool:
        """Whether a requester may read all quotas."""

    def denial(self, requester: Requester, right: Right) -> str:
        """Return the text of the answer to a requester without a right."""

    async def describe_many(
        self, requester: Requester, components: Sequence[Component], *, strict: bool, broker_allows: bool | None = None
    ) -> Description:
        """Return the quotas that match a filter."""

    async def alter(
        self, requester: Requester, alterations: Sequence[Alteration], *, validate_only: bool, broker_allows: bool | None = None
    ) -> list[Result]:
        """Validate alterations, make the valid and authorized ones, and return a result for each entity."""


class ClientQuotaApi:
    """Answers the requests for quotas of all connections."""

    def __init__(self, administration: QuotaAdministration, authority: BrokerAuthority) -> None:
        self._administration = administration
        self._authority = authority

    async def answer(self, connection: Connection, request: Administered) -> bytes:
        """Return the complete response to a request."""
        requester = requester_of(connection)
        body = request.body if request.body is not None else await asyncio.to_thread(read_body, request)
        api, correlation_id = request.api, request.correlation_id
        if isinstance(body, ConfigRequest):
            return await self._answer_configs(connection, requester, request, body)
        if isinstance(body, DescribeRequest):
            answer = await self._describe(connection, requester, request, body)
            return await offload(len(answer.entries or ()), describe_answer, api.version, correlation_id, answer)
        alterations = await offload(len(body.entries), _alterations, body)
        results = await self._alter(connection, requester, request, alterations, validate_only=body.validate_only)
        return await offload(len(results), _alter_answer, api.version, correlation_id, results)

    async def _describe(self, connection: Connection, requester: Requester, request: Administered, body: DescribeRequest) -> DescribeAnswer:
        allows = None
        if self._administration.authority == "broker":
            judged = await self._authority.judge_description(connection, request)
            if judged is not None and judged.error_code not in (0, CLUSTER_AUTHORIZATION_FAILED):
                return judged
            allows = judged is not None and judged.error_code == 0
        components = [Component(*one) for one in body.components]
        found = await self._administration.describe_many(requester, components, strict=body.strict, broker_allows=allows)
        return await offload(len(found.entries or ()), described, found)

    async def _alter(
        self, connection: Connection, requester: Requester, request: Administered, alterations: list[Alteration], *, validate_only: bool
    ) -> list[Result]:
        if self._administration.authority != "broker":
            return await self._administration.alter(requester, alterations, validate_only=validate_only)
        allows, refused, right = await self._authority.judge(connection, request, alterations)
        return refused + await self._administration.alter(requester, right, validate_only=validate_only, broker_allows=allows)

    async def _answer_configs(self, connection: Connection, requester: Requester, request: Administered, body: ConfigRequest) -> bytes:
        """Answer for users and clients; for other resources the request is sent to the broker first."""
        api, count = request.api, len(body.resources)
        ours, theirs = await offload(count, _sides, body)
        if len(ours) > RESOURCES_MAX:
            raise BadRequestError(f"{len(ours)} users and clients in one request for configurations, limit {RESOURCES_MAX}")
        frame = None
        if theirs:
            frame = await connection.ask(api, await offload(count, cut_config_request, api, request.frame, body, theirs, CORRELATION_ID))
            frame = await offload(len(frame) // CONFIG_BYTES, connection.session.rewrite, api, frame)
        if api.key == ApiKey.DESCRIBE_CONFIGS:
            results = await self._describe_resources(connection, requester, request, body, ours)
        else:
            results = await self._alter_resources(connection, requester, request, body, ours)
        if frame is None:
            return answer_of(api, request.correlation_id, [results[place] for place in ours])
        return await offload(max(count, len(frame) // CONFIG_BYTES), joined_answer, api, frame, request.correlation_id, body, results)

    async def _describe_resources(
        self, connection: Connection, requester: Requester, request: Administered, body: ConfigRequest, ours: dict[int, ConfigResource]
    ) -> dict[int, bytes]:
        allows = None
        if self._administration.authority == "broker":
            allows = await self._authority.may_describe(connection, request)
        denial = None if self._administration.may_describe(requester, allows) else self._administration.denial(requester, "read")
        results: dict[int, bytes] = {}
        for place, resource in ours.items():
            try:
                entity = entity_of(resource)
                found = await self._administration.describe_many(requester, filter_of(entity), strict=True, broker_allows=allows)
                await asyncio.sleep(0)  # let other tasks run
                if found.entries is None:
                    raise AdminError(found.error_code, found.error_message or DENIED)
            except AdminError as error:
                results[place] = _refusal(request, error, resource, denial)
            else:
                results[place] = described_result(request.api, body, resource, configs_of(resource, entity, found.entries.get(entity, {})))
        return results

    async def _alter_resources(
        self, connection: Connection, requester: Requester, request: Administered, body: ConfigRequest, ours: dict[int, ConfigResource]
    ) -> dict[int, bytes]:
        may = self._administration.authority == "broker" or self._administration.may_alter(requester)
        denial = None if may else self._administration.denial(requester, "write")
        results: dict[int, bytes] = {}
        alterations: dict[int, Alteration] = {}
        for place, resource in ours.items():
            try:
                alterations[place] = alteration_of(resource)
            except AdminError as error:
                results[place] = _refusal(request, error, resource, denial)
        made = await self._alter(connection, requester, request, list(alterations.values()), validate_only=body.flags[0])
        by_entity = {result.entity: result for result in made}
        for place, alteration in alterations.items():
            result = by_entity[alteration.entity]
            results[place] = plain_result(request.api, result.error_code, result.error_message, ours[place])
        return results


def _refusal(request: Administered, error: AdminError, resource: ConfigResource, denial: str | None) -> bytes:
    """Return an error response; a requester without rights gets only the authorization error, with the text `denial`."""
    if denial is None:
        return plain_result(request.api, error.code, error.message, resource)
    return plain_result(request.api, CLUSTER_AUTHORIZATION_FAILED, denial, resource)


def requester_of(connection: Connection) -> Requester:
    """Return the requester of a connection."""
    principal = connection.session.principal
    host, port = connection.peer
    return Requester(None if principal is None else str(principal), "kafka", f"{host}:{port}", connection.listener_name)


def _sides(body: ConfigRequest) -> tuple[dict[int, ConfigResource], frozenset[int]]:
    """Return the users and clients of a request by index, and the indexes of the broker's resources."""
    ours = {place: resource for place, resource in enumerate(body.resources) if resource.type in QUOTA_TYPES}
    return ours, frozenset(range(len(body.resources))) - ours.keys()


def _alterations(body: AlterRequest) -> list[Alteration]:
    return [Alteration(entity, [Op(*op) for op in ops]) for entity, ops in body.entries]


def _alter_answer(version: int, correlation_id: int, results: list[Result]) -> bytes:
    return alter_answer(version, correlation_id, [AlterResult(*one) for one in results])


def described(found: Description) -> DescribeAnswer:
    """Return a description in wire form: brokers use "" as the message without an error."""
    if found.entries is None:
        return DescribeAnswer(found.error_code, found.error_message, None)
    entries = [QuotaEntry(entity, values) for entity, values in found.entries.items()]
    return DescribeAnswer(found.error_code, found.error_message if found.error_code else "", entries)
