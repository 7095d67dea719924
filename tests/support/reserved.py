"""The bytes that one address has reserved in the budget of all buffers."""

from proxy.session.buffers import BufferAccount
from quota.connections.client_address import client_network


def reserved_by(account: BufferAccount, host: str) -> int:
    """Return how many bytes the address of `host` has reserved."""
    address = account._addresses.get(client_network(host))
    return 0 if address is None else address.reserved_bytes
