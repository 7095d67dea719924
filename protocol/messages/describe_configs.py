"""DescribeConfigs responses (32): values that carry addresses as text go out as sensitive ones, which have no value."""

from protocol.api_keys import ApiVersion


def redact(api: ApiVersion, frame: bytes) -> bytes:
    """Return the response with every value of a broker that carries addresses made null and marked sensitive.

    Raises:
        BadResponseError: the frame does not read as its version says.
    """
    raise NotImplementedError
