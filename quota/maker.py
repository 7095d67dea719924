"""Makers of groups: a client that invents client-ids is limited to a share of the tables that it fills.

A user that the broker authenticated is one maker. Without a known user, all clients of one address (IPv6: one /64) at one listener are
one maker, so that no client can use up the table by connecting again under other names.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from quota.connections.client_address import client_network
from quota.entity import ANONYMOUS, KafkaPrincipal
from quota.names import kept_name


class Maker(NamedTuple):
    """One maker. All attributes empty: no maker.

    Attributes:
        user: its name, shortened as in tables; "" for a client without a known user.
        listener, network: where the client connects, and from which address.
    """

    user: str = ""
    listener: str = ""
    network: str = ""

    @property
    def share(self) -> "Maker":
        """The maker whose share is used: a user has one share for all addresses."""
        return Maker(self.user) if self.user else self

    @property
    def place(self) -> "Maker":
        """All clients of this listener and address, whatever their names."""
        return Maker("", self.listener, self.network)

    def of_user(self, name: str) -> "Maker":
        """A user at this listener and address."""
        return Maker(kept_name(name), self.listener, self.network)


NO_MAKER: Final = Maker()


@lru_cache(maxsize=4096)
def maker_at(listener: str, host: str) -> Maker:
    """Return the maker of all clients at a listener from an IP address; an IPv4 address in IPv6 form is the IPv4 address."""
    return Maker("", listener, client_network(host))


def maker_of(principal: KafkaPrincipal) -> Maker:
    """Return the maker of a principal whose listener and address are unknown."""
    return NO_MAKER if is_anonymous(principal) else NO_MAKER.of_user(principal.name)


def is_anonymous(principal: KafkaPrincipal) -> bool:
    """Whether a principal is Kafka's own for clients that have not authenticated."""
    return principal.name == ANONYMOUS.name and principal.type == ANONYMOUS.type
