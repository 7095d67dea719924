"""Observers of SASL mechanisms. They read the tokens of both sides and return the user's name when the broker reports success.

They know nothing of frames, sockets or brokers. A token is looked at where it lies and never kept; nothing but the name is made a text.
"""

from protocol.sasl.mechanisms import observer_of
from protocol.sasl.observer import Progress, TokenObserver

__all__ = ["Progress", "TokenObserver", "observer_of"]
