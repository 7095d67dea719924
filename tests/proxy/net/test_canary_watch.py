"""The probe of the brokers' authorizer by an account without rights."""

import pytest

from protocol.errors import BadResponseError
from protocol.messages.client_quotas import AlterResult, alter_answer, read_alter_request
from protocol.request_head import read_request_head
from proxy.net.upstream.login import LoginFailedError
from proxy.quota_admin.authorizer_probe import ENTITY, AuthorizerProbe
from proxy.quota_admin.broker_authority import BrokerAuthority
from proxy.telemetry.counters import AdministrationCounts


class Broker:
    """A broker that answers with `says`: an error code, a response, or an exception."""

    def __init__(self) -> None:
        self.says: int | bytes | Exception = 31
        self.asked: list[bytes] = []

    async def ask(self, frame: bytes) -> bytes:
        self.asked.append(frame)
        if isinstance(self.says, Exception):
            raise self.says
        return alter_answer(0, 1, [AlterResult(ENTITY, self.says, None)]) if isinstance(self.says, int) else self.says


async def test_a_no_proves_the_lock() -> None:
    """The broker is trusted only after it has refused the canary's validate-only change."""
    counts, broker = AdministrationCounts(), Broker()
    watch = AuthorizerProbe(BrokerAuthority(counts), broker.ask)
    assert (counts.authority_is_trusted, watch.state) == (False, "untried")
    assert await watch.attempt()
    assert (counts.authority_is_trusted, watch.state) == (True, "works")
    (frame,) = broker.asked
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    assert read_alter_request(0, frame, head.body_at).validate_only


@pytest.mark.parametrize("says", [0, 42, -1, alter_answer(0, 1, []), alter_answer(0, 1, [AlterResult(ENTITY, 31, None)] * 2)])
async def test_anything_else_takes_the_authority_away(says: int | bytes) -> None:
    """Any other answer ends the trust until the next refusal."""
    counts, broker = AdministrationCounts(), Broker()
    watch = AuthorizerProbe(BrokerAuthority(counts), broker.ask)
    await watch.attempt()
    broker.says = says
    assert await watch.attempt()
    assert not counts.authority_is_trusted
    broker.says = 31
    await watch.attempt()
    assert counts.authority_is_trusted


@pytest.mark.parametrize("problem", [OSError("refused"), TimeoutError(), LoginFailedError("no"), BadResponseError("what")])
async def test_no_answer_proves_nothing(problem: Exception) -> None:
    """A probe without an answer does not change the trust."""
    counts, broker = AdministrationCounts(), Broker()
    watch = AuthorizerProbe(BrokerAuthority(counts), broker.ask)
    broker.says = problem
    assert not await watch.attempt()
    assert not counts.authority_is_trusted
    broker.says = 31
    await watch.attempt()
    broker.says = problem
    assert not await watch.attempt()
    assert counts.authority_is_trusted
