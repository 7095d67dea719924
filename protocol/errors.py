"""Errors for invalid or forbidden messages. Each class maps to one close reason."""


class ProtocolError(Exception):
    """The peer violated the protocol, or sent a request that Sluice refuses.

    Attributes:
        reason: slug of the close reason; a connection that raised this ends with it.
    """

    reason = "bad_request"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason

    def forget_frames(self) -> None:
        """Drop the traceback, when the error was handled.

        Its frames refer to the error and to all objects of a connection, so only the garbage collector would free these.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None


class FrameSizeError(ProtocolError):
    """A frame length below the minimum or above the limit."""

    reason = "frame_size"


class BadHeaderError(ProtocolError):
    """A request header that is invalid or exceeds a limit."""

    reason = "bad_header"


class BadRequestError(ProtocolError):
    """A request body whose first fields are invalid."""

    reason = "bad_request"


class TooManyTopicsError(BadRequestError):
    """A request to create or delete topics, or its response, with more elements than Sluice checks."""

    reason = "too_many_topics"


class BadResponseError(ProtocolError):
    """A response that does not match its API and version."""

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
    """The first bytes of a connection are not a valid PROXY header."""

    reason = "proxy_header"


class ClientHelloError(ProtocolError):
    """The first bytes of a TLS connection are not a readable ClientHello."""

    reason = "tls_handshake"
