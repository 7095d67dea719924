"""The client that requests a change or a description, and its way in."""

from __future__ import annotations

from typing import Literal, NamedTuple

Way = Literal["kafka", "http"]
Right = Literal["read", "write"]


class Requester(NamedTuple):
    """Where a request comes from, as far as it is known."""

    principal: str | None
    """Such as "User:alice" or "User:ANONYMOUS"; of a token of the admin port "Token:NAME"; None: unknown."""
    way: Way
    peer: str
    """Address and port; "" where there is none."""
    listener: str
    """Its name; "admin" for the admin port."""
    right: Right | None = None
    """The rights of the token of the admin port that came with the request; never of a Kafka client."""
