"""Requests about quotas that Sluice answers instead of the broker.

DescribeClientQuotas and AlterClientQuotas; and, of requests for configurations, those that name users or clients (KIP-422).
"""

from __future__ import annotations

from protocol.api_keys import ApiKey, ApiVersion
from protocol.errors import BadRequestError, ProtocolError
from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages.client_quotas import AlterRequest, DescribeRequest, read_alter_request, read_describe_request
from protocol.messages.config_resources import ConfigRequest, names_quotas, read_config_request
from protocol.primitives import INT32, Buffer
from protocol.request_head import RequestHead, read_request_head
from protocol.steps import Steps
from proxy.session.parsed_response import ParsedResponse
from proxy.session.request_context import RequestContext

QUOTA_KEYS = frozenset({ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS})
CONFIG_KEYS = frozenset({ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
OWN_VERSIONS = {int(key): (0, 1) for key in QUOTA_KEYS}
"""Version ranges that Sluice offers when it keeps the quotas, whatever the broker supports."""
CORRELATION_ID = 0x51_54_41_00
"""Correlation id of all requests that Sluice sends for such a request; easy to find in a capture."""


AT_ONCE_BYTES = 4 * 1024
"""A larger request is parsed where it is answered, outside the connection's callback."""

Body = DescribeRequest | AlterRequest | ConfigRequest


class Administered:
    """A request that Sluice answers. No other request is in flight until it is answered.

    Attributes:
        body: the parsed request; None: `read_body` parses it later.
        frame: the whole request, as received.
        begun: whether answering has begun.
    """

    __slots__ = ("api", "begun", "body", "client_id", "correlation_id", "frame", "head")

    def __init__(self, head: RequestContext, correlation_id: int, client_id: bytes | None, frame: bytes, body: Body | None) -> None:
        self.head = head
        self.api = head.api
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame
        self.body = body
        self.begun = False


def read_administered(known: RequestContext, frame: bytes) -> Administered:
    """Parse a whole request; for a large one only the header.

    Raises:
        BadRequestError: the frame does not match its version.
    """
    head = _head(frame)
    (correlation_id,) = INT32.unpack_from(frame, RESPONSE_HEAD_BYTES)
    request = Administered(known, correlation_id, head.client_id_bytes, frame, None)
    if len(frame) <= AT_ONCE_BYTES:
        request.body = read_body(request)
    return request


def read_body(request: Administered) -> Body:
    """Return the parsed body of a request.

    Raises:
        BadRequestError: the frame does not match its version.
    """
    api, frame = request.api, request.frame
    body_at = _head(frame).body_at
    if api.key in CONFIG_KEYS:
        return read_config_request(api, frame, body_at)
    read = read_describe_request if api.key == ApiKey.DESCRIBE_CLIENT_QUOTAS else read_alter_request
    return read(api.version, frame, body_at)


def is_for_us(api: ApiVersion, frame: Buffer) -> Steps[bool]:
    """Return whether a whole configuration request names users or clients. An invalid request is left for the broker to refuse."""
    yield
    try:
        return (yield from names_quotas(api, frame, _head(frame).body_at))
    except ProtocolError:
        return False


def _head(frame: Buffer) -> RequestHead:
    head = read_request_head(frame, 0, len(frame) - LENGTH_BYTES)
    if head is None:
        raise BadRequestError("the request ends inside its header")
    return head


class BrokersAnswer:
    """The broker's response to a request of Sluice's own on the client's connection. The client does not receive it."""

    __slots__ = ("frame",)

    def __init__(self) -> None:
        self.frame: bytes | None = None

    def parse(self, frame: bytes | memoryview, _now_ms: int) -> Steps[ParsedResponse]:
        """Store the response."""
        self.frame = bytes(frame)
        return ParsedResponse(b"")
        yield
