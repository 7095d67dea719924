"""The admin calls of KIP-422 from Python against Sluice; `tests/integration/quotas/test_quota_admin.py` runs them against brokers."""

import asyncio

import pytest

from proxy.quota_admin.authorizer import Rules
from sluice.admin import AsyncQuotaAdmin, QuotaAdminError
from sluice.quota_targets import (
    DEFAULT,
    ClientQuotaTarget,
    ClientQuotaType,
    QuotaLimit,
    QuotaTarget,
    QuotaTargetType,
    UserAndClientIdQuotaTarget,
    UserQuotaTarget,
)
from tests.support.scripted.administered_gateway import Keeper
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_sockets import HOST

TARGETS: list[QuotaTarget] = [
    ClientQuotaTarget("etl"),
    ClientQuotaTarget(DEFAULT),
    UserQuotaTarget("alice"),
    UserAndClientIdQuotaTarget("alice", DEFAULT),
]
BYTES = QuotaLimit(ClientQuotaType.PRODUCE, 1_024)
PERCENT = QuotaLimit(ClientQuotaType.REQUEST, 50)


async def test_set_described_and_deleted() -> None:
    """Setting a limit keeps the target's other limits, and deleting a target removes all of them, even when it has none."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        async with AsyncQuotaAdmin(f"{HOST}:{sluice.port}") as admin:
            judged = await admin.set_quotas(dict.fromkeys(TARGETS, BYTES), validate_only=True)
            assert (judged, keeper.quotas) == (dict.fromkeys(TARGETS), {})
            assert await admin.set_quotas(dict.fromkeys(TARGETS, BYTES)) == dict.fromkeys(TARGETS)
            assert await admin.set_quotas({TARGETS[0]: PERCENT}) == {TARGETS[0]: None}
            assert await admin.describe_quota(TARGETS[0]) == [BYTES, PERCENT]
            assert await admin.describe_quota(TARGETS[3]) == [BYTES]
            assert await admin.describe_quota(UserQuotaTarget("nobody")) == []
            assert await admin.delete_quotas([*TARGETS, UserQuotaTarget("nobody")]) == dict.fromkeys([*TARGETS, UserQuotaTarget("nobody")])
            assert keeper.quotas == {}


async def test_a_result_for_each_target() -> None:
    """A refused target has an error of its own, and the other targets are changed."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, Rules("list", frozenset({"User:ANONYMOUS"}), deny_self=True))
        async with AsyncQuotaAdmin(f"{HOST}:{sluice.port}") as admin:
            results = await admin.set_quotas({UserQuotaTarget("ANONYMOUS"): BYTES, UserQuotaTarget("alice"): BYTES})
            denied = results[UserQuotaTarget("ANONYMOUS")]
            assert denied is not None
            assert denied.code == 31
            assert results[UserQuotaTarget("alice")] is None
            assert keeper.quotas == {(("user", "alice"),): {"producer_byte_rate": 1_024.0}}


async def test_no_answer_in_time() -> None:
    """A call without an answer fails after its `timeout_ms`."""
    never = asyncio.Event()

    async with ScriptedBroker() as broker, open_gateway(broker, clean=False) as sluice:
        keeper = Keeper(sluice)

        async def hangs(_decide: object) -> None:
            await never.wait()

        keeper.store.alter = hangs  # type: ignore[assignment, method-assign]
        async with AsyncQuotaAdmin(f"{HOST}:{sluice.port}") as admin:
            with pytest.raises(QuotaAdminError, match="no answer in time"):
                await admin.set_quotas({TARGETS[0]: BYTES}, timeout_ms=50)
        never.set()


def test_targets_and_limits() -> None:
    """Targets have their types, a limit is a whole number above 0, and described fractions are rounded down to at least 1."""
    assert [target.target_type for target in TARGETS[1:]] == [
        QuotaTargetType.CLIENT,
        QuotaTargetType.USER,
        QuotaTargetType.USER_AND_CLIENT_ID,
    ]
    assert QuotaLimit.all_of({"request_percentage": 12.5, "controller_mutation_rate": 0.25, "other": 1.0}) == [
        QuotaLimit(ClientQuotaType.REQUEST, 12),
        QuotaLimit(ClientQuotaType.CONTROLLER_MUTATION, 1),
    ]
    for wrong in (0, -1, 2**63, 1.5, True):
        with pytest.raises(ValueError, match="is not a limit"):
            QuotaLimit(ClientQuotaType.PRODUCE, wrong)  # type: ignore[arg-type]
