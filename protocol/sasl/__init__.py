"""Observers of SASL mechanisms. They read the tokens of both sides and return the user's name when the broker reports success.

They do not depend on frames, sockets or brokers. A token is read in place and never stored; only the name becomes a str.
"""

from protocol.sasl.mechanisms import observer_of
from protocol.sasl.observer import Progress, TokenObserver

__all__ = ["Progress", "TokenObserver", "observer_of"]
