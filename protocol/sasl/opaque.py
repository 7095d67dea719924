"""Mechanisms that do not show the user: GSSAPI, whose ticket is encrypted, and unknown ones.

The name in the last token of a GSSAPI client is chosen by the client and ignored by brokers, so it is never used.
"""

from protocol.primitives import Buffer
from protocol.sasl.observer import Progress, TokenObserver


class OpaqueObserver(TokenObserver):
    """Any number of tokens; the broker's last response looks like those before it."""

    __slots__ = ()

    def answered(self, token: Buffer) -> Progress:
        """Only the client's next message shows the result."""
        return Progress.UNDETERMINED

    def _claimed(self, token: Buffer) -> str | None:
        return None


def is_gssapi_token(beginning: Buffer) -> bool:
    """Return whether bytes are a GSSAPI token rather than a request, which begins with an API key.

    With tokens that are not framed (handshake v0) nothing else marks the last one, which the broker does not answer. Sources: RFC 2743
    3.1 (0x60), RFC 4121 4.2.6 (0x0504, 0x0404); the empty token is the client's answer to the last but one.
    """
    return len(beginning) == 0 or beginning[0] == 0x60 or bytes(beginning[:2]) in (b"\x05\x04", b"\x04\x04")
