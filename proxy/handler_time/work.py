"""The class of work of each API: the cost of its bytes, and whether its response may be delayed by the broker."""

from __future__ import annotations

from typing import Final

from protocol.api_keys import ApiKey

PRODUCE_NS_PER_BYTE: Final = 3.5
ANSWER_NS_PER_BYTE: Final = 0.4
ACKS_ALL: Final = -1
ALONE: Final = 0.7
"""Share of the time between request and answer that threads work, when nothing else is under way."""

PROMPT: Final = 0.0
"""No cap: the answer never waits for anything but a thread, so its time may teach what a small request costs."""


class Work:
    """One kind of request.

    Attributes:
        key: tells the classes of this kind from those of others; the size is added to it.
        cap: an answer that may wait is never charged more than so many small requests and its bytes; `PROMPT` when it does not wait.
        ns_per_byte: what a byte costs: of the request for Produce, of the answer otherwise.
        by_request: bytes are the request's.
        behind: share of the time since the answer before it that threads work for one that was sent behind others.
        loads: it counts for how busy the broker is: what does not wait, or for the broker's own threads, disk and replicas only, which
            others wait for too.
        of_login: logging in, which is no request to a broker's handlers unless the broker refuses it.
    """

    __slots__ = ("behind", "by_request", "cap", "key", "loads", "ns_per_byte", "of_login")

    def __init__(self, number: int, cap: float, *, by_request: bool = False, loads: bool = True, of_login: bool = False) -> None:
        self.key = number << 6
        self.cap = cap
        self.by_request = by_request
        self.behind = ALONE if cap else 1.0
        self.loads = loads
        self.of_login = of_login
        self.ns_per_byte = PRODUCE_NS_PER_BYTE if by_request else ANSWER_NS_PER_BYTE


CAP_REPLICATED: Final = 1.6
CAP_WAITING: Final = 2.0
CAP_API_VERSIONS: Final = 0.6  # its answer is built after the charge

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
"""Finished by a coordinator's threads, which no client is charged for; they wait for those and no longer."""
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
    """Return the work of an API, of Produce by its acks."""
    if acks == ACKS_ALL and api_key == ApiKey.PRODUCE:
        return _PRODUCE_ALL
    return _WORKS.get(api_key, _UNKNOWN)
