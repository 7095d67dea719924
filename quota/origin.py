"""Where a client comes in, as far as quotas look at it: the same for many connections."""

from typing import Final, NamedTuple


class Origin(NamedTuple):
    """The listener, and in which of the networks that declared groups name the client's address lies (a bit for each)."""

    listener: str = ""
    networks: int = 0


NOWHERE: Final = Origin()
