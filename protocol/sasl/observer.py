"""The interface of all observers."""

import enum

from protocol.limits import MAX_OBSERVED_TOKEN_BYTES
from protocol.primitives import Buffer


class Progress(enum.Enum):
    """What the broker's answer to a token means, where it was no refusal."""

    GOES_ON = "goes on"  # the client has to say more
    SUCCEEDED = "succeeded"
    UNTOLD = "untold"  # one of the two; only what comes next will show


class TokenObserver:
    """Watches one exchange of one mechanism. No method raises, whatever the tokens are.

    Attributes:
        name: the user that the client's tokens name, by the broker's own grammar; None: no user, or an ambiguous token. It is a mere claim
            until `answered` says `SUCCEEDED`.
        is_delegation_token: the name is the id of a delegation token; its owner is known to the broker alone.
    """

    __slots__ = ("is_delegation_token", "name", "rounds")

    def __init__(self) -> None:
        self.name: str | None = None
        self.is_delegation_token = False
        self.rounds = 0

    def sent(self, token: Buffer) -> None:
        """Look at a token that the client sends."""
        self.rounds += 1
        if self.rounds == 1:
            self.name = self._claimed(token) if len(token) <= MAX_OBSERVED_TOKEN_BYTES else None
        elif not self._may_follow(token):
            self.name = None

    def answered(self, token: Buffer) -> Progress:
        """Look at what the broker answers without an error; with one the exchange has failed, and nothing needs to be asked."""
        raise NotImplementedError

    def _claimed(self, token: Buffer) -> str | None:
        """Return whom the first token names."""
        raise NotImplementedError

    def _may_follow(self, token: Buffer) -> bool:
        """Return whether the name stands with a further token."""
        return False
