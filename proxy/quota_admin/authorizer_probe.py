"""Checks that the brokers refuse an account without rights, at startup and every ten minutes.

With `authority = "broker"`, a broker without an authorizer would authorize every client. No API shows the difference, so
Sluice sends requests as a principal without rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from protocol.errors import ProtocolError
from protocol.messages.client_quotas import QuotaOp, alter_request, read_alter_answer
from proxy.net.upstream.broker_client import CLIENT_ID
from proxy.net.upstream.login import LoginFailedError
from proxy.quota_admin.broker_authority import BrokerAuthority
from proxy.telemetry import log
from proxy.telemetry.status import LoginState
from quota.admin.messages import CLUSTER_AUTHORIZATION_FAILED

INTERVAL_S: Final = 600.0
RETRY_S: Final = 5.0
"""Pause after an inconclusive attempt."""
VERSION: Final = 0
CORRELATION_ID: Final = 3
ENTITY: Final = (("user", "sluice-canary"),)
REMEDY: Final = "give the brokers an authorizer, or the canary account no rights; until then no client may change quotas here"

Ask = Callable[[bytes], Awaitable[bytes]]
"""Sends one complete request by the account without rights; returns the complete response."""


class AuthorizerProbe:
    """Suspends `authority = "broker"` until the brokers have refused the probe. A result is valid until the next one.

    Attributes:
        state: state of the probe, for `/readyz`.
    """

    def __init__(self, authority: BrokerAuthority, ask: Ask) -> None:
        self._authority = authority
        self._ask = ask
        self._problem: str | None = None
        self.state: LoginState = "untried"
        authority.is_trusted = False

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            is_proven = await self.attempt()
            await asyncio.sleep(INTERVAL_S if is_proven else RETRY_S)

    async def attempt(self) -> bool:
        """Check once; return whether the result was conclusive."""
        change = (ENTITY, [QuotaOp("producer_byte_rate", 1.0)])
        request = alter_request(VERSION, CORRELATION_ID, CLIENT_ID, [change], validate_only=True)
        try:
            found = read_alter_answer(VERSION, await self._ask(request))
        except (OSError, LoginFailedError, ProtocolError) as error:
            self.state = "refused" if isinstance(error, LoginFailedError) else self.state
            self._log_problem(str(error) or type(error).__name__)
            return False
        self.state = "works"
        codes = [one.error_code for one in found]
        is_locked = codes == [CLUSTER_AUTHORIZATION_FAILED]
        self._authority.is_trusted = is_locked
        if is_locked:
            if self._problem is not None:
                log.info("quota_authority_proven")
            self._problem = None
        else:
            self._log_problem(f"an account without rights may change quotas at the brokers (error codes {codes}); {REMEDY}")
        return True

    def _log_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.error("quota_authority_unproven", problem=problem, trusted=self._authority.is_trusted)
