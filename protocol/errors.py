"""What a broken or forbidden message raises. Each class maps to one close reason."""


class ProtocolError(Exception):
    """The peer broke the protocol, or asked for what Sluice does not let through.

    Attributes:
        reason: slug of the close reason; a connection that raised this ends with it.
    """

    reason = "bad_request"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class FrameSizeError(ProtocolError):
    """A frame length below its minimum or above its limit."""

    reason = "frame_size"


class BadHeaderError(ProtocolError):
    """A request header that cannot be read, or is larger than its limits."""

    reason = "bad_header"


class BadRequestError(ProtocolError):
    """A request body whose beginning cannot be read."""

    reason = "bad_request"


class TooManyTopicsError(BadRequestError):
    """A request to make or delete topics, or its answer, with more in it than is judged."""

    reason = "too_many_topics"


class BadResponseError(ProtocolError):
    """A response that does not read as its API and version say."""

    reason = "bad_response"


class UnknownApiError(ProtocolError):
    """An API key that is not in the table."""

    reason = "api_unknown"


class UnknownVersionError(ProtocolError):
    """A version that is not in the table of a known API key."""

    reason = "version_unknown"


class RefusedApiError(ProtocolError):
    """An API of the inter-broker or controller plane."""

    reason = "api_refused"


class ProxyHeaderError(ProtocolError):
    """What a load balancer sent first is no header that can be understood."""

    reason = "proxy_header"


class ClientHelloError(ProtocolError):
    """What a client of TLS sent first cannot be read."""

    reason = "tls_handshake"
