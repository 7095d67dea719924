"""The administration of quotas in a worker: it knows the configured authority and requests everything else from the supervisor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from proxy.quota_admin.authorizer import Authorizer
from proxy.quota_admin.requester import Requester, Right
from proxy.quota_admin.service import NOT_CONTROLLER
from proxy.workers.messaging.link import Link, LinkLost
from proxy.workers.messaging.messages import AlterQuotas, DescribeQuotas, described_in, results_in
from quota.admin.messages import Alteration, Component, Description, Result

if TYPE_CHECKING:
    from proxy.config.sections.admin import Authority

ALTER_S: Final = 30.0
"""Time limit for a response, since a store may be slow. The supervisor completes a change also after the time limit."""


class RemoteAdministration:
    """The `Administration` that a worker's `ClientQuotaApi` uses."""

    def __init__(self, link: Link, authorizer: Authorizer) -> None:
        self._link = link
        self.authorizer = authorizer

    @property
    def authority(self) -> Authority:
        """The configured authority."""
        return self.authorizer.rules.authority

    def may_alter(self, requester: Requester, broker_allows: bool | None = None) -> bool:
        """Whether a requester may change quotas."""
        return self.authorizer.may_alter(requester, broker_allows)

    def may_describe(self, requester: Requester, broker_allows: bool | None = None) -> bool:
        """Whether a requester may read all quotas."""
        return self.authorizer.may_describe(requester, broker_allows)

    def denial(self, requester: Requester, right: Right) -> str:
        """Return the text of the answer to a requester without a right."""
        return self.authorizer.denial(requester, right)

    async def describe_many(
        self, requester: Requester, components: Sequence[Component], *, strict: bool, broker_allows: bool | None = None
    ) -> Description:
        """Return the quotas that match a filter, as `Administration.describe_many`; without a supervisor, Kafka's retriable error 41."""
        try:
            body = await self._link.ask(DescribeQuotas(requester, list(components), strict, broker_allows), ALTER_S)
        except LinkLost as error:
            return Description(NOT_CONTROLLER, str(error), None)
        found = described_in(body)
        return Description(found.error_code, found.error_message, None if found.entries is None else dict(found.entries))

    async def alter(
        self, requester: Requester, alterations: Sequence[Alteration], *, validate_only: bool, broker_allows: bool | None = None
    ) -> list[Result]:
        """Validate and make alterations, as `Administration.alter`; without a supervisor, each result is Kafka's retriable error 41."""
        try:
            body = await self._link.ask(AlterQuotas(requester, list(alterations), validate_only, broker_allows), ALTER_S)
        except LinkLost as error:
            return [Result(one.entity, NOT_CONTROLLER, str(error)) for one in alterations]
        return results_in(body)
