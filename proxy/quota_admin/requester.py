"""The client that requests a change or a description, and its origin."""

from __future__ import annotations

from typing import Literal, NamedTuple

Way = Literal["kafka", "http"]
Right = Literal["read", "write"]


class Requester(NamedTuple):
    """The origin of a request, as far as known."""

    principal: str | None
    """Principal, such as "User:alice" or "User:ANONYMOUS"; "Token:NAME" for a token of the admin port; None: unknown."""
    way: Way
    peer: str
    """Address and port of the client; "" if there is none."""
    listener: str
    """Name of the listener; "admin" for the admin port."""
    right: Right | None = None
    """The rights of the request's admin token; None for a Kafka client."""
