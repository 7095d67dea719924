"""The kind of work of each API: the cost of its bytes, and whether the broker may delay its response."""

from __future__ import annotations

from typing import Final

from protocol.api_keys import ApiKey

PRODUCE_NS_PER_BYTE: Final = 3.5
ANSWER_NS_PER_BYTE: Final = 0.4
ACKS_ALL: Final = -1
IDLE_BROKER_SHARE: Final = 0.7
"""Share of the time between request and response that threads work while the broker serves no other request."""

PROMPT: Final = 0.0
"""No cap: the response waits only for a thread, so its duration is a sample of the cost of a small request."""


class Work:
    """One kind of request.

    Attributes:
        key: first key of the classes of this kind; the number of bits of the size is added to it.
        cap: maximum charge of a response that may wait, in small requests, plus the cost of its bytes; `PROMPT`: it does not wait.
        ns_per_byte: cost of a byte in nanoseconds: of the request for Produce, of the response otherwise.
        by_request: whether the size is that of the request.
        behind: share of the time since the previous response that threads work for a request that was sent before that response.
        loads: whether its duration counts for the load. It does if the response does not wait, or waits only for the broker's threads,
            disk and replicas, for which other requests wait, too.
        of_login: whether it belongs to a login, which request handlers do not serve unless the broker refuses it.
    """

    __slots__ = ("behind", "by_request", "cap", "key", "loads", "ns_per_byte", "of_login")

    def __init__(self, number: int, cap: float, *, by_request: bool = False, loads: bool = True, of_login: bool = False) -> None:
        self.key = number << 6
        self.cap = cap
        self.by_request = by_request
        self.behind = IDLE_BROKER_SHARE if cap else 1.0
        self.loads = loads
        self.of_login = of_login
        self.ns_per_byte = PRODUCE_NS_PER_BYTE if by_request else ANSWER_NS_PER_BYTE


CAP_REPLICATED: Final = 1.6
CAP_WAITING: Final = 2.0
CAP_API_VERSIONS: Final = 0.6  # the broker builds the response after it records the time

_PROMPT_APIS: Final = (
    ApiKey.METADATA,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
)
_BRIEF_APIS: Final = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
)
"""Requests that a coordinator's threads finish. The broker charges no client for these threads, and the response waits only for them."""
_LOGIN_APIS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


_WORKS: Final[dict[int, Work]] = {
    **{key: Work(key, CAP_WAITING, loads=False) for key in ApiKey},
    **{key: Work(key, PROMPT) for key in _PROMPT_APIS},
    **{key: Work(key, CAP_WAITING) for key in _BRIEF_APIS},
    ApiKey.API_VERSIONS: Work(ApiKey.API_VERSIONS, CAP_API_VERSIONS),
    ApiKey.PRODUCE: Work(ApiKey.PRODUCE, PROMPT, by_request=True),
    **{key: Work(key, CAP_WAITING, of_login=True) for key in _LOGIN_APIS},
}
_PRODUCE_ALL: Final = Work(max(ApiKey) + 1, CAP_REPLICATED, by_request=True)
_UNKNOWN: Final = Work(max(ApiKey) + 2, CAP_WAITING, loads=False)
VERSIONS_BEFORE_LOGIN: Final = Work(ApiKey.API_VERSIONS, CAP_API_VERSIONS, of_login=True)


def work_of(api_key: int, acks: int | None = None) -> Work:
    """Return the kind of work of an API; Produce has one for each of acks=all and other acks."""
    if acks == ACKS_ALL and api_key == ApiKey.PRODUCE:
        return _PRODUCE_ALL
    return _WORKS.get(api_key, _UNKNOWN)
