"""The state of Sluice's own login at the brokers. After a failure it is retried seldom, so that the account is not locked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.base.secret import Secret
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.login import Credentials
from proxy.net.upstream.login import LoginFailedError, log_in
from proxy.telemetry.status import LoginState
from sluice.broker_client import BrokerClient

RETRY_MS: Final = 60_000
"""Retry interval after a refusal. A new password or token is tried at once."""
REFRESH_INTERVAL_MS: Final = 30_000
"""Interval after a success: how often the topology is requested when each request costs a login."""


class OwnLogin:
    """Whether the brokers require a login, and whether Sluice's works.

    Attributes:
        state: as in `/readyz`.
        problem: why the last login failed.

    Args:
        credentials: None when there are none.
        on_change: called with the problem when a login fails for a new reason; with None when it works.
    """

    def __init__(self, credentials: Credentials | None, on_change: Callable[[str | None], None]) -> None:
        self._credentials = credentials
        self._on_change = on_change
        self._tried: Secret | None = None
        self._due_ms: int | None = None  # None: at once
        self.state: LoginState = "missing" if credentials is None else "untried"
        self.problem: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether credentials are configured."""
        return self._credentials is not None

    async def may_ask(self, connection: BrokerClient, now_ms: int) -> bool:
        """Log in on a new connection if there are credentials; return whether further requests can succeed.

        Raises:
            OSError, asyncio.IncompleteReadError, ProtocolError: a failure unrelated to the login.
        """
        if self._credentials is None:
            return True
        try:
            secret = await asyncio.to_thread(self._credentials.secret)
        except CredentialsError as error:
            self._failed("unreadable", str(error))
            return False
        if self._due_ms is not None and now_ms < self._due_ms and secret == self._tried:
            return False
        self._tried = secret
        try:
            await log_in(connection, self._credentials, secret)
        except LoginFailedError as error:
            self._due_ms = now_ms + RETRY_MS
            self._failed("refused", str(error))
            return False
        self._due_ms = now_ms + REFRESH_INTERVAL_MS
        if self.state != "works":
            self.state, self.problem = "works", None
            self._on_change(None)
        return True

    def closed_by_broker(self) -> None:
        """The broker closed the connection instead of answering."""
        if self._credentials is None:
            self.state = "missing"

    def answered(self) -> None:
        """The broker answered a request that requires a login, if the broker requires one at all."""
        if self._credentials is None:
            self.state = "unneeded"

    def _failed(self, state: LoginState, problem: str) -> None:
        self.state = state
        if problem != self.problem:
            self.problem = problem
            self._on_change(problem)
