"""The channels of a worker: each read first applies the quotas that the supervisor has sent."""

from __future__ import annotations

from collections.abc import Callable

from proxy.net.relay.broker_channel import BrokerChannel
from proxy.net.relay.client_channel import ClientChannel
from proxy.net.relay.flow import ChannelOwner
from proxy.session.session import Session

Check = Callable[[], None]


class CheckedClientChannel(ClientChannel):
    """A client channel that calls `check` before each read of requests."""

    __slots__ = ("_check",)

    def __init__(self, connection: ChannelOwner, session: Session, check: Check) -> None:
        super().__init__(connection, session)
        self._check = check

    def data_received(self, data: bytes) -> None:
        """Apply newer quotas, then handle the bytes as `ClientChannel` does."""
        self._check()
        ClientChannel.data_received(self, data)


class CheckedBrokerChannel(BrokerChannel):
    """A broker channel that calls `check` before each read of responses."""

    __slots__ = ("_check",)

    def __init__(self, connection: ChannelOwner, session: Session, check: Check) -> None:
        super().__init__(connection, session)
        self._check = check

    def data_received(self, data: bytes) -> None:
        """Apply newer quotas, then handle the bytes as `BrokerChannel` does."""
        self._check()
        BrokerChannel.data_received(self, data)


def channels_of(connection: ChannelOwner, session: Session, check: Check | None) -> tuple[ClientChannel, BrokerChannel]:
    """Return both channels of a connection; with `check`, channels that call it before each read."""
    if check is None:
        return ClientChannel(connection, session), BrokerChannel(connection, session)
    return CheckedClientChannel(connection, session, check), CheckedBrokerChannel(connection, session, check)
