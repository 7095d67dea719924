"""The observer of each mechanism."""

from typing import Final

from protocol.sasl.oauthbearer import DEFAULT_CLAIM, OAuthBearerObserver
from protocol.sasl.observer import TokenObserver
from protocol.sasl.opaque import OpaqueObserver
from protocol.sasl.plain import PlainObserver
from protocol.sasl.scram import ScramObserver

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
READABLE: Final = frozenset({PLAIN, *SCRAM, OAUTHBEARER})
"""Mechanisms whose tokens contain the user's name."""
KNOWN: Final = READABLE | {GSSAPI}
"""Names that may appear in a metric; others are counted together."""
CLEAR: Final = frozenset({PLAIN, OAUTHBEARER})
"""Mechanisms whose tokens can be reused by an eavesdropper."""


def observer_of(mechanism: str, claim: str = DEFAULT_CLAIM) -> TokenObserver:
    """Return an observer for one exchange; `claim` is the claim with the user. Mechanism names are case-sensitive, as in Kafka."""
    if mechanism == PLAIN:
        return PlainObserver()
    if mechanism in SCRAM:
        return ScramObserver()
    if mechanism == OAUTHBEARER:
        return OAuthBearerObserver(claim)
    return OpaqueObserver()
