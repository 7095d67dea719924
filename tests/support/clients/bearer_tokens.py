"""Unsecured bearer tokens for aiokafka and kafka-python."""

import time
from typing import Any

from aiokafka.abc import AbstractTokenProvider as AioTokens
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokens

from tests.support.tls import sasl_tokens


class Tokens(AioTokens, PythonTokens):
    """Unsecured tokens of one user."""

    def __init__(self, user: str) -> None:
        self._user = user

    def token(self) -> Any:
        """Return a token that lasts a minute; for aiokafka an awaitable."""
        now = int(time.time())
        return sasl_tokens.jwt({"sub": self._user, "iat": now, "exp": now + 60})


class AwaitedTokens(Tokens):
    """Unsecured tokens of one user, for aiokafka."""

    async def token(self) -> str:
        """Return a token that lasts a minute."""
        return str(super().token())
