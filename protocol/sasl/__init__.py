"""Who logs in? Observers of SASL mechanisms: tokens of both sides go in, a name comes out, and only on the broker's success mark.

They know nothing of frames, sockets or brokers. A token is looked at where it lies and never kept; nothing but the name is made a text.
"""

from protocol.sasl.mechanisms import observer_of
from protocol.sasl.observer import Progress, TokenObserver

__all__ = ["Progress", "TokenObserver", "observer_of"]
