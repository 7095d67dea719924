"""Answers requests about quotas in the broker's place: what the wire says goes to the administration, what that says goes back.

Where the broker is the authority it is asked first, on the asker's own connection: with the asker's rights, and about nothing but them.
"""

from __future__ import annotations

from protocol.messages.client_quotas import (
    AlterResult,
    DescribeAnswer,
    DescribeRequest,
    QuotaEntry,
    alter_answer,
    describe_answer,
)
from proxy.administration.asker import Asker
from proxy.administration.service import Administration
from proxy.net.broker_authority import BrokerAuthority
from proxy.net.connection import Connection
from proxy.session.administered import Administered
from quota.admin.messages import CLUSTER_AUTHORIZATION_FAILED, Alteration, Component, Description, Op, Result


class QuotaDesk:
    """Where connections take their requests about quotas."""

    def __init__(self, administration: Administration, authority: BrokerAuthority) -> None:
        self._administration = administration
        self._authority = authority

    async def answer(self, connection: Connection, request: Administered) -> bytes:
        """Return the whole answer to a request."""
        asker = asker_of(connection)
        if isinstance(request.body, DescribeRequest):
            answer = await self._describe(connection, asker, request, request.body)
            return describe_answer(request.api.version, request.correlation_id, answer)
        alterations = [Alteration(entity, [Op(*op) for op in ops]) for entity, ops in request.body.entries]
        results = await self._alter(connection, asker, request, alterations, validate_only=request.body.validate_only)
        return alter_answer(request.api.version, request.correlation_id, [AlterResult(*one) for one in results])

    async def _describe(self, connection: Connection, asker: Asker, request: Administered, body: DescribeRequest) -> DescribeAnswer:
        allows = None
        if self._administration.authority == "broker":
            judged = await self._authority.judge_description(connection, request)
            if judged is not None and judged.error_code not in (0, CLUSTER_AUTHORIZATION_FAILED):
                return judged
            allows = judged is not None and judged.error_code == 0
        components = [Component(*one) for one in body.components]
        return described(self._administration.describe(asker, components, strict=body.strict, broker_allows=allows))

    async def _alter(
        self, connection: Connection, asker: Asker, request: Administered, alterations: list[Alteration], *, validate_only: bool
    ) -> list[Result]:
        if self._administration.authority != "broker":
            return await self._administration.alter(asker, alterations, validate_only=validate_only)
        allows, refused, right = await self._authority.judge(connection, request, alterations)
        return refused + await self._administration.alter(asker, right, validate_only=validate_only, broker_allows=allows)


def asker_of(connection: Connection) -> Asker:
    """Return who sits at the other end of a connection."""
    principal = connection.session.principal
    host, port = connection.peer
    return Asker(None if principal is None else str(principal), "kafka", f"{host}:{port}", connection.listener_name)


def described(found: Description) -> DescribeAnswer:
    """Return a description as it goes on the wire: brokers say "" where nothing went wrong."""
    if found.entries is None:
        return DescribeAnswer(found.error_code, found.error_message, None)
    entries = [QuotaEntry(entity, values) for entity, values in found.entries.items()]
    return DescribeAnswer(found.error_code, found.error_message if found.error_code else "", entries)
