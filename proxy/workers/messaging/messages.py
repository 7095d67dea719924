"""What the supervisor and its workers say to each other. Both are of one version: the supervisor starts its workers."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from proxy.config.flags import Flags
from proxy.quota_admin.requester import Requester
from quota.admin.messages import Alteration, Component, EntityKey, Result


class Message(msgspec.Struct, tag=True, array_like=True):
    """One message; its class is its tag."""


# --- by the supervisor


class Start(Message):
    """The first message of all: the configuration, as the supervisor has read it, and which worker this is.

    Attributes:
        number: of this worker; `numbers`: of all workers of the supervisor.
    """

    config_path: str | None
    config_text: bytes | None
    flags: Flags
    number: int
    numbers: list[int]


class Quotas(Message):
    """Quotas and switches that hold from now on.

    Attributes:
        generation: counts these messages.
        whole: nothing else holds; otherwise entities that are not named stay as they are.
        entities: values by key; none: the entity has no quota any more.
        switches: all of them, by target.
        who: the principal that asked for the change; None: it came from elsewhere.
    """

    generation: int
    whole: bool
    entities: list[tuple[EntityKey, dict[str, float]]]
    switches: dict[str, str]
    who: str | None


class Ports(Message):
    """The ports of a listener as they are bound: that of the bootstrap, and those of brokers by node id."""

    listener: str
    bootstrap_port: int
    brokers: dict[int, int]


class MakeRoom(Message):
    """End a connection that is not of this listener."""

    protected_listener: str


class Cluster(Message):
    """Which brokers and partitions exist: node ids; topic, partition and leader."""

    cluster_id: str | None
    brokers: list[tuple[int, str, int]]
    partitions: list[tuple[str, int, int]]


class Authority(Message):
    """Whether a broker's consent to a change of quotas means anything."""

    is_trusted: bool


class PrepareReload(Message):
    """Say whether the configuration can be obeyed whose file says this."""

    number: int
    config_text: bytes | None


class CommitReload(Message):
    """Obey the configuration that was prepared, or, not `is_agreed`, forget it."""

    number: int
    is_agreed: bool


class Drain(Message):
    """Answer what is in flight, then end."""


class Stop(Message):
    """End now."""


# --- by a worker


class Ready(Message):
    """The worker serves what it is given."""


class Failed(Message):
    """The worker cannot start: one line for each problem."""

    lines: list[str]


class InForce(Message):
    """Quotas of this generation hold in the worker."""

    generation: int


class Prepared(Message):
    """The configuration can be obeyed, or, with lines, cannot."""

    number: int
    lines: list[str]


class Left(Message):
    """A connection has ended: where it came in, and what it counted as."""

    listener: str
    ip_key: tuple[int, str]


class LoginFailed(Message):
    """A broker did not let in a client of this address."""

    host: str
    port: int


class Accepting(Message):
    """Whether there is memory for more connections."""

    may_accept: bool


class PrincipalLeft(Message):
    """A connection of a principal, of which there is a limit, has ended."""

    kind: str
    name: str


# --- by both


class BrokerMet(Message):
    """Where a broker is, by the route of this number."""

    route: int
    node_id: int
    host: str
    port: int


class AlterQuotas(Message):
    """Asks the supervisor to make changes; the answer is a list of results."""

    requester: Requester
    alterations: list[Alteration]
    validate_only: bool
    broker_allows: bool | None


class DescribeQuotas(Message):
    """Asks the supervisor for quotas; the answer is `Described`."""

    requester: Requester
    components: list[Component]
    strict: bool
    broker_allows: bool | None


class Look(Message):
    """Asks a worker for what a page of the admin port needs; the answer is that page's own."""

    query: bytes


Asked = AlterQuotas | DescribeQuotas | Look
"""What can be asked for."""


class Request(Message):
    """Asks for an answer of the same number."""

    number: int
    what: Asked


class Answer(Message):
    """The answer, encoded; None: it failed, for the reason in `problem`."""

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
    | PrepareReload
    | CommitReload
    | Drain
    | Stop
    | Ready
    | Failed
    | InForce
    | Prepared
    | Left
    | LoginFailed
    | Accepting
    | PrincipalLeft
    | BrokerMet
    | Request
    | Answer
)
"""Every message of a link."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(AnyMessage)
_RESULTS: Final = msgspec.msgpack.Decoder(list[Result])
_DESCRIBED: Final = msgspec.msgpack.Decoder(Described)


def encoded(value: Any) -> bytes:
    """Return a message, or the body of an answer, as bytes."""
    return _ENCODER.encode(value)


def decoded(data: bytes | memoryview) -> AnyMessage:
    """Return the message in `data`.

    Raises:
        msgspec.DecodeError: there is none; the other side is of another version.
    """
    message: AnyMessage = _DECODER.decode(data)
    return message


def results_in(body: bytes) -> list[Result]:
    """Return what an answer to `AlterQuotas` says."""
    return _RESULTS.decode(body)


def described_in(body: bytes) -> Described:
    """Return what an answer to `DescribeQuotas` says."""
    return _DESCRIBED.decode(body)
