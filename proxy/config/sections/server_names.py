"""Host names of brokers that share one port: templates such as `broker-{node_id}.kafka.example.org`."""

from __future__ import annotations

import re
from typing import Final

from proxy.base.host_port import ip_of, read_host

NODE_ID: Final = "{node_id}"
NODE_ID_MAX: Final = 2**31 - 1
BROKER_REMEDY: Final = f'a host name with {NODE_ID} in it, such as "broker-{NODE_ID}.kafka.example.org"'
NAME_REMEDY: Final = "a host name; addresses are not sent in SNI"


class UnknownServerNameError(Exception):
    """A client requested an unknown host name, or none; the text says which."""


class ServerNames:
    """The host names of one listener.

    Args:
        bootstrap: the name that stands for any broker.
        broker: the template of the brokers' names.
        others_bootstrap: whether unknown names, and a missing name, stand for any broker; otherwise they are refused.
    """

    __slots__ = ("_bootstrap", "_broker", "_node_id", "_others_bootstrap")

    def __init__(self, bootstrap: str, broker: str, *, others_bootstrap: bool) -> None:
        self._bootstrap = _plain(bootstrap)
        self._broker = broker
        before, _, behind = _plain(broker).partition(NODE_ID)
        self._node_id = re.compile(rf"{re.escape(before)}(0|[1-9][0-9]{{0,9}}){re.escape(behind)}", re.ASCII)
        self._others_bootstrap = others_bootstrap

    def name_of(self, node_id: int) -> str:
        """Return the host name of a broker."""
        return self._broker.replace(NODE_ID, str(node_id))

    def node_of(self, name: str | None) -> int | None:
        """Return the broker of a host name; None: any broker.

        Raises:
            UnknownServerNameError: the name is unknown.
        """
        plain = None if name is None else _plain(name)
        if plain is not None:
            if plain == self._bootstrap:
                return None
            found = self._node_id.fullmatch(plain)
            if found and int(found[1]) <= NODE_ID_MAX:
                return int(found[1])
        if self._others_bootstrap:
            return None
        raise UnknownServerNameError("the client named no host (SNI)" if name is None else f'no listener has the name "{name}"')


def read_bootstrap_name(value: object) -> str:
    """Return a host name that clients can send.

    Raises:
        ValueError: it is an IP address, or not a host name.
    """
    name = read_host(value)
    if ip_of(name) is not None:
        raise ValueError(f'"{value}" is an address')
    return name


def read_broker_name(value: object) -> str:
    """Return the template of brokers' names.

    Raises:
        ValueError: the names of two brokers could be equal, or are not host names.
    """
    if not isinstance(value, str) or value.count(NODE_ID) != 1:
        raise ValueError(f"does not contain {NODE_ID} exactly once")
    longest = value.replace(NODE_ID, str(NODE_ID_MAX))
    read_bootstrap_name(longest)
    if any(len(label) > 63 for label in longest.split(".")):
        raise ValueError(f'"{value}" has a part of more than 63 letters')
    return value


def _plain(name: str) -> str:
    """Return a name in the form used for comparison: lower case, without a trailing dot."""
    return name.lower().removesuffix(".")
