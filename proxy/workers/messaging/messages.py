"""The messages between supervisor and workers. Both have the same version, since the supervisor starts its workers."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from proxy.config.flags import Flags
from proxy.fleet.status import FleetStatus
from proxy.quota_admin.requester import Requester
from quota.admin.messages import Alteration, Component, EntityKey, Result


class Message(msgspec.Struct, tag=True, array_like=True):
    """One message; its class is its tag."""


# --- from the supervisor


class Start(Message):
    """The first message to a worker: the configuration as the supervisor has read it, and the worker's number.

    Attributes:
        number: number of this worker.
        numbers: numbers of all workers of the supervisor.
    """

    config_path: str | None
    config_text: bytes | None
    flags: Flags
    number: int
    numbers: list[int]


class Quotas(Message):
    """Quotas and switches that apply from now on.

    Attributes:
        generation: number of this message.
        whole: whether `entities` has all quotas; otherwise entities that are not named stay unchanged.
        entities: values by quota key for each entity, in units per second; empty: the quotas of the entity are removed.
        switches: all enforcement modes, by target.
        who: the principal that requested the change; None: it came from another source.
        pacing: how quotas are enforced, by target.
    """

    generation: int
    whole: bool
    entities: list[tuple[EntityKey, dict[str, float]]]
    switches: dict[str, str]
    who: str | None
    pacing: dict[str, str] = {}


class Ports(Message):
    """The bound ports of a listener: bootstrap port, and ports of brokers by node id."""

    listener: str
    bootstrap_port: int
    brokers: dict[int, int]


class MakeRoom(Message):
    """Close a connection of another listener."""

    protected_listener: str


class Cluster(Message):
    """Brokers and partitions of the cluster: node ids; topic, partition and leader."""

    cluster_id: str | None
    brokers: list[tuple[int, str, int]]
    partitions: list[tuple[str, int, int]]


class Authority(Message):
    """Whether the brokers' authorizer can be trusted with changes of quotas."""

    is_trusted: bool


class FleetQuotas(Message):
    """To the hub of a fleet: the number of this member's quotas, and that of its limits on connections (0: it does not share them)."""

    number: int
    limits: int


class FleetConnections(Message):
    """To the hub of a fleet: entries about connections to publish."""

    entries: bytes


class PrepareReload(Message):
    """Check whether this configuration can be applied; the response is `Prepared`."""

    number: int
    config_text: bytes | None


class CommitReload(Message):
    """Apply the prepared configuration if `is_agreed`, otherwise drop it."""

    number: int
    is_agreed: bool


class Drain(Message):
    """Forward responses in flight, then end."""


class Stop(Message):
    """End now."""


# --- from a worker


class Ready(Message):
    """The worker serves connections."""


class Failed(Message):
    """The worker cannot start; one line for each problem."""

    lines: list[str]


class InForce(Message):
    """Quotas of this generation are in use in the worker."""

    generation: int


class Prepared(Message):
    """The result of `PrepareReload`; without lines the configuration can be applied, otherwise each line is a problem."""

    number: int
    lines: list[str]


class FleetJoined(Message):
    """The hub of a fleet has read what the other members used within the window."""


class FleetState(Message):
    """The state of the fleet as its hub sees it, and the time since the last message of each other member, by incarnation."""

    status: FleetStatus
    silent_ms: dict[int, int]


class OtherConnections(Message):
    """Entries about connections of another member.

    Attributes:
        incarnation: of the member.
        at_ms: when the message came, or would have come, in monotonic ms.
        is_new: False: the message was read by an earlier hub of this member, too.
    """

    incarnation: int
    at_ms: int
    is_new: bool
    entries: bytes


class ConnectionEnded(Message):
    """A connection has ended; listener and address key identify its slot."""

    listener: str
    ip_key: tuple[int, str]


class LoginFailed(Message):
    """A broker refused the login of a client with this address."""

    host: str
    port: int


class Accepting(Message):
    """Whether the worker has memory for more connections."""

    may_accept: bool


class PrincipalConnectionEnded(Message):
    """A connection of a principal with a limit has ended."""

    kind: str
    name: str


# --- from both


class BrokerAddress(Message):
    """The address of a broker, with the number of its route."""

    route: int
    node_id: int
    host: str
    port: int


class BrokerReached(Message):
    """The node id of the broker that a worker has reached at an address, with the number of its route."""

    route: int
    node_id: int
    host: str
    port: int


class AlterQuotas(Message):
    """Request to the supervisor to make changes; the response is a list of results."""

    requester: Requester
    alterations: list[Alteration]
    validate_only: bool
    broker_allows: bool | None


class DescribeQuotas(Message):
    """Request to the supervisor for quotas; the response is `Described`."""

    requester: Requester
    components: list[Component]
    strict: bool
    broker_allows: bool | None


class PageRequest(Message):
    """Request to a worker for its part of a page of the admin port."""

    query: bytes


Asked = AlterQuotas | DescribeQuotas | PageRequest
"""All requests."""


class Request(Message):
    """A request; its response has the same number."""

    number: int
    what: Asked


class Answer(Message):
    """The encoded response; None: the request failed with `problem`."""

    number: int
    body: bytes | None
    problem: str = ""


class Described(Message):
    """Quotas that were found; None with an error."""

    error_code: int
    error_message: str | None
    entries: list[tuple[EntityKey, dict[str, float]]] | None


AnyMessage = (
    Start
    | Quotas
    | Ports
    | MakeRoom
    | Cluster
    | Authority
    | FleetQuotas
    | FleetConnections
    | PrepareReload
    | CommitReload
    | Drain
    | Stop
    | Ready
    | Failed
    | InForce
    | Prepared
    | FleetJoined
    | FleetState
    | OtherConnections
    | ConnectionEnded
    | LoginFailed
    | Accepting
    | PrincipalConnectionEnded
    | BrokerAddress
    | BrokerReached
    | Request
    | Answer
)
"""Every message of a link."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(AnyMessage)
_RESULTS: Final = msgspec.msgpack.Decoder(list[Result])
_DESCRIBED: Final = msgspec.msgpack.Decoder(Described)


def encoded(value: Any) -> bytes:
    """Return the encoded message or body of a response."""
    return _ENCODER.encode(value)


def decoded(data: bytes | memoryview) -> AnyMessage:
    """Return the decoded message.

    Raises:
        msgspec.DecodeError: `data` is not a message of this version.
    """
    message: AnyMessage = _DECODER.decode(data)
    return message


def results_in(body: bytes) -> list[Result]:
    """Return the results in the body of a response to `AlterQuotas`."""
    return _RESULTS.decode(body)


def described_in(body: bytes) -> Described:
    """Return the body of a response to `DescribeQuotas`."""
    return _DESCRIBED.decode(body)
