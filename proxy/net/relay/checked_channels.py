"""The channels of a process whose quotas come from another one: what was decided elsewhere is taken in before bytes are judged."""

from __future__ import annotations

from collections.abc import Callable

from proxy.net.relay.broker_channel import BrokerChannel
from proxy.net.relay.client_channel import ClientChannel
from proxy.net.relay.flow import ChannelOwner
from proxy.session.session import Session

Check = Callable[[], None]


class CheckedClientChannel(ClientChannel):
    """Reads requests after a check."""

    __slots__ = ("_check",)

    def __init__(self, connection: ChannelOwner, session: Session, check: Check) -> None:
        super().__init__(connection, session)
        self._check = check

    def data_received(self, data: bytes) -> None:
        """Look for what was decided elsewhere, then do what every client's channel does."""
        self._check()
        ClientChannel.data_received(self, data)


class CheckedBrokerChannel(BrokerChannel):
    """Reads answers after a check."""

    __slots__ = ("_check",)

    def __init__(self, connection: ChannelOwner, session: Session, check: Check) -> None:
        super().__init__(connection, session)
        self._check = check

    def data_received(self, data: bytes) -> None:
        """Look for what was decided elsewhere, then do what every broker's channel does."""
        self._check()
        BrokerChannel.data_received(self, data)


def channels_of(connection: ChannelOwner, session: Session, check: Check | None) -> tuple[ClientChannel, BrokerChannel]:
    """Return both channels of a connection; with a check, those that make it."""
    if check is None:
        return ClientChannel(connection, session), BrokerChannel(connection, session)
    return CheckedClientChannel(connection, session, check), CheckedBrokerChannel(connection, session, check)
