"""The interface of all observers."""

import enum

from protocol.limits import MAX_OBSERVED_TOKEN_BYTES
from protocol.primitives import Buffer


class Progress(enum.Enum):
    """Meaning of the broker's response to a token when it has no error code."""

    GOES_ON = "goes on"  # the client has to send more
    SUCCEEDED = "succeeded"
    UNDETERMINED = "undetermined"  # one of the two; the next message shows which


class TokenObserver:
    """Observes one exchange of one mechanism. No method raises, whatever the tokens are.

    Attributes:
        name: the user of the client's tokens, parsed as the broker does; None: no user, or an ambiguous token. It is only a claim
            until `answered` returns `SUCCEEDED`.
        is_delegation_token: the name is the id of a delegation token, whose owner only the broker knows.
    """

    __slots__ = ("is_delegation_token", "name", "rounds")

    def __init__(self) -> None:
        self.name: str | None = None
        self.is_delegation_token = False
        self.rounds = 0

    def sent(self, token: Buffer) -> None:
        """Read a token that the client sends."""
        self.rounds += 1
        if self.rounds == 1:
            self.name = self._claimed(token) if len(token) <= MAX_OBSERVED_TOKEN_BYTES else None
        elif not self._may_follow(token):
            self.name = None

    def answered(self, token: Buffer) -> Progress:
        """Read a response of the broker without an error code. After an error code the exchange has failed, and this is not called."""
        raise NotImplementedError

    def _claimed(self, token: Buffer) -> str | None:
        """Return the user of the first token."""
        raise NotImplementedError

    def _may_follow(self, token: Buffer) -> bool:
        """Return whether a further token is consistent with the name."""
        return False
