"""Makers of groups: a client that invents client-ids is limited to a share of the tables that they fill.

A user that the broker let in is one maker. Of clients without a known user those of one address (of IPv6: one /64) at one listener are one,
so that no client fills up what others need by connecting again under other names.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from quota.connections.client_address import client_network
from quota.entity import ANONYMOUS, KafkaPrincipal
from quota.names import kept_name


class Maker(NamedTuple):
    """One of them. All empty: no maker.

    Attributes:
        user: its name as tables keep it; "" for a client without a known user.
        listener, network: where it comes in, and from which address.
    """

    user: str = ""
    listener: str = ""
    network: str = ""

    @property
    def share(self) -> "Maker":
        """As whom it has a share: a user has one wherever it comes from."""
        return Maker(self.user) if self.user else self

    @property
    def place(self) -> "Maker":
        """All clients that come in there, by any name."""
        return Maker("", self.listener, self.network)

    def of_user(self, name: str) -> "Maker":
        """A user that comes in here."""
        return Maker(kept_name(name), self.listener, self.network)


NO_MAKER: Final = Maker()


@lru_cache(maxsize=4096)
def maker_at(listener: str, host: str) -> Maker:
    """Return the maker of all clients at a listener from an IP address; an IPv4 address in IPv6 form is the IPv4 address."""
    return Maker("", listener, client_network(host))


def maker_of(principal: KafkaPrincipal) -> Maker:
    """Return the maker that a principal is, where nothing is known of where it comes from."""
    return NO_MAKER if is_anonymous(principal) else NO_MAKER.of_user(principal.name)


def is_anonymous(principal: KafkaPrincipal) -> bool:
    """Whether a principal is Kafka's own for clients that did not log in."""
    return principal.name == ANONYMOUS.name and principal.type == ANONYMOUS.type
