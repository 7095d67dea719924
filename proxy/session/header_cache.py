"""A cache of request headers for all connections: clients of one kind send the same few headers, byte for byte."""

from __future__ import annotations

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.limits import LENGTH_BYTES
from protocol.primitives import Buffer
from protocol.request_head import RequestHead, read_request_head

CREDENTIAL_KEYS = frozenset(
    {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    }
)
"""APIs whose bodies contain credentials, also as values of configurations such as ssl.keystore.password: their frames are not cached."""
FRAME_BYTES_MAX = 256  # larger frames differ each time
HEADS_MAX = 1_024
INDEX_BYTES = 4  # API key and version
CORRELATION_ID_BYTES = 4


class HeaderCache:
    """Parses request heads, and caches those of small frames. The correlation id of a cached head is that of another request."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[bytes, RequestHead] = {}

    def read(self, data: Buffer, at: int, size: int, *, unknown_apis_pass: bool) -> RequestHead | None:
        """Do what `read_request_head` does, except for the correlation id."""
        index_end = at + LENGTH_BYTES + INDEX_BYTES
        end = at + LENGTH_BYTES + size
        if size > FRAME_BYTES_MAX or end > len(data) or data[at + LENGTH_BYTES + 1] in CREDENTIAL_KEYS:  # the low byte of the API key
            return read_request_head(data, at, size, unknown_apis_pass=unknown_apis_pass)
        key = bytes(data[at + LENGTH_BYTES : index_end]) + bytes(data[index_end + CORRELATION_ID_BYTES : end])
        head = self._heads.get(key)
        if head is None:
            head = read_request_head(data, at, size, unknown_apis_pass=unknown_apis_pass)
            if head is not None and _may_be_kept(head):
                if len(self._heads) >= HEADS_MAX:
                    self._heads.clear()
                self._heads[key] = head
        return head


def _may_be_kept(head: RequestHead) -> bool:
    """Whether a whole frame may be cached. Unknown APIs are not, since the setting that lets them pass can change."""
    return head.api.index in API_VERSIONS
