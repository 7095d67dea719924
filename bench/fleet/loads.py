"""How clients spread over the members of a fleet, how much passes, and how evenly the members pass it."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sin
from operator import mul


def connections_of(load: str, members: int, connections: int, *, moves: int = 0) -> list[int]:
    """Return the number of connections of each member.

    Args:
        load: "even", "skewed" (one connection at each member but the first) or "moving" (all at one member).
        moves: how often all of them have moved to the next member.
    """
    if load == "even":
        return [connections // members] * members
    if load == "skewed":
        return [max(1, connections - members + 1)] + [1] * (members - 1)
    return [connections * (number == moves % members) for number in range(members)]


def jains_index(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 if all shares are equal, 1 / n if one of n has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def long_run(parts: Sequence[float]) -> float:
    """Return the mean of equal parts of time, of which those at both ends have little weight (Hann's window).

    Bytes pass in waves, so with equal weights the mean depends on whether a wave is just inside.
    """
    weights = [sin(pi * (at + 0.5) / len(parts)) ** 2 for at in range(len(parts))]
    return sum(map(mul, parts, weights)) / sum(weights)
