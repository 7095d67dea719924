"""Pairs of a neighbour and a victim. A client is loud in a window in which its share of a broker's load is high. Figures of other clients
in these windows are compared with their figures in other windows.

A coincidence does not prove a cause. A pair is reported only when both sides of the comparison have several windows.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from pipeline.neighbours.load import Client, Load
from pipeline.replay.rows import Flags, Floats, Ints

WINDOWS_MIN: Final = 3
SLOWER: Final = 1.5
MORE_THROTTLED: Final = 20.0
ANONYMOUS: Final = "ANONYMOUS"


class Pair(msgspec.Struct):
    """A loud client, and a client that was slower or waited more at the same time.

    Attributes:
        share_percent: mean share of the broker's load that the neighbour has in its loud windows.
        windows, others: number of loud windows, and of other windows, in which the victim was active.
        slower: time per request in loud windows divided by that in other windows; None when no time was metered.
        throttled_percent, throttled_percent_otherwise: percentage of the victim's requests, in loud and in other windows.
        requests, requests_otherwise: number of the victim's requests, in loud and in other windows.
        ms_per_request, ms_per_request_otherwise: time of the broker's threads; 0 when no time was metered.
        may_share: both have the same user or client-id, so they may share a quota. Otherwise neither makes the other wait.
    """

    proxy_id: str
    node: str
    neighbour: str
    victim: str
    share_percent: float
    windows: int
    others: int
    slower: float | None
    throttled_percent: float
    throttled_percent_otherwise: float
    may_share: bool
    first_ms: int
    requests: int
    requests_otherwise: int
    ms_per_request: float
    ms_per_request_otherwise: float

    @property
    def says(self) -> str:
        """Description of the effect on the victim; empty when there is none."""
        parts = [f"{self.slower:.1f} times slower" if self.slower is not None and self.slower >= SLOWER else ""]
        more = self.may_share and self.throttled_percent - self.throttled_percent_otherwise >= MORE_THROTTLED
        parts.append(f"throttled {self.throttled_percent:.0f} % instead of {self.throttled_percent_otherwise:.0f} %" if more else "")
        return ", ".join(part for part in parts if part)


def pairs_of(load: Load, share_percent: float) -> list[Pair]:
    """Return the pairs, worst first.

    Args:
        load: the load of all clients.
        share_percent: lowest share of a broker's load of a loud client.
    """
    found = [pair for place in range(len(load.places)) for pair in _at_place(load, place, share_percent / 100) if pair.says]
    return sorted(found, key=lambda pair: (-(pair.slower or 1.0), -pair.throttled_percent, pair.neighbour, pair.victim))


def _at_place(load: Load, place: int, threshold: float) -> Iterator[Pair]:
    here = load.place == place
    window, client = load.window[here], load.client[here]
    windows, at = np.unique(window, return_inverse=True)
    totals = np.bincount(at, weights=load.load[here])
    share: Floats = np.divide(load.load[here], totals[at], out=np.zeros(len(at)), where=totals[at] > 0)
    loud = (share >= threshold) & (np.bincount(at)[at] > 1)
    for neighbour in np.unique(client[loud]).tolist():
        is_loud: Flags = np.zeros(len(windows), np.bool_)
        own = loud & (client == neighbour)
        is_loud[at[own]] = True
        for victim in np.unique(client[client != neighbour]).tolist():
            pair = _pair(load, place, here, (neighbour, victim), client == victim, is_loud[at], float(share[own].mean()))
            if pair is not None:
                yield pair


def _pair(load: Load, place: int, here: Flags, names: tuple[int, int], is_victim: Flags, is_loud: Flags, share: float) -> Pair | None:
    during, otherwise = is_victim & is_loud, is_victim & ~is_loud
    if during.sum() < WINDOWS_MIN or otherwise.sum() < WINDOWS_MIN:
        return None
    requests, ns, throttled = load.requests[here], load.handler_ns[here], load.throttled[here]
    apart = _per(ns, requests, otherwise)
    return Pair(
        *load.places[place],
        client_name(load.clients[names[0]]),
        client_name(load.clients[names[1]]),
        100 * share,
        int(during.sum()),
        int(otherwise.sum()),
        _per(ns, requests, during) / apart if apart > 0 else None,
        100 * _per(throttled, requests, during),
        100 * _per(throttled, requests, otherwise),
        _may_share(load.clients[names[0]], load.clients[names[1]]),
        int(load.window[here][during].min()) * load.window_ms,
        int(requests[during].sum()),
        int(requests[otherwise].sum()),
        _per(ns, requests, during) / 1e6,
        apart / 1e6,
    )


def _per(amount: Ints, requests: Ints, chosen: Flags) -> float:
    return float(amount[chosen].sum() / max(int(requests[chosen].sum()), 1))


def _may_share(one: Client, other: Client) -> bool:
    return one[1] == other[1] or one[0] == other[0] != ANONYMOUS


def client_name(client: Client) -> str:
    """Return the display name of a client."""
    user, client_id = client
    return f"{user}/{client_id}" if client_id else user


def as_rows(pairs: list[Pair]) -> list[dict[str, Any]]:
    """Return pairs as plain rows for JSON and CSV."""
    return [{**msgspec.structs.asdict(pair), "says": pair.says} for pair in pairs]
