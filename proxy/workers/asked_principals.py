"""Connections of each principal over all workers. The supervisor counts them, and a worker asks it at each login."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from proxy.session.login.principal_connections import PrincipalConnections
from proxy.workers.messaging.messages import AnyMessage, PrincipalConnectionEnded
from proxy.workers.messaging.questions import EnterPrincipal, Questions
from quota.entity import KafkaPrincipal

_DECODER: Final[msgspec.msgpack.Decoder[bool]] = msgspec.msgpack.Decoder(bool)


class RemotePrincipals(PrincipalConnections):
    """Counts in the supervisor and in this worker. The worker's count applies while the supervisor does not answer.

    Without a limit on connections of a principal only the worker counts.
    """

    def __init__(self, questions: Questions, send: Callable[[AnyMessage], None]) -> None:
        super().__init__()
        self._questions = questions
        self._send = send

    def enter(self, principal: KafkaPrincipal, *, only_observes: bool) -> bool:
        """Count a connection of `principal`; False: the principal has reached its limit, and the connection is not counted."""
        if self.max_connections is not None or self.overrides:
            may_stay = self._questions.ask(EnterPrincipal(principal.type, principal.name, only_observes), _DECODER)
            if may_stay is False:
                return False
            if may_stay:
                return super().enter(principal, only_observes=True)
        return super().enter(principal, only_observes=only_observes)

    def leave(self, principal: KafkaPrincipal) -> None:
        """Stop counting a connection of `principal`."""
        super().leave(principal)
        self._send(PrincipalConnectionEnded(principal.type, principal.name))
