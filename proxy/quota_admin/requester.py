"""The client that requests a change or a description, and its origin."""

from __future__ import annotations

from typing import Literal, NamedTuple

Way = Literal["kafka", "http"]
Right = Literal["read", "write"]


class Requester(NamedTuple):
    """The origin of a request, as far as it is known."""

    principal: str | None
    """Such as "User:alice" or "User:ANONYMOUS"; for a token of the admin port "Token:NAME"; None: unknown."""
    way: Way
    peer: str
    """Address and port; "" without one."""
    listener: str
    """Its name; "admin" for the admin port."""
    right: Right | None = None
    """The rights of the request's admin token; None for a Kafka client."""
