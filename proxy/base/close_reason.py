"""All reasons why connections end. Each closed connection has exactly one."""

from __future__ import annotations

from enum import StrEnum

from protocol.errors import ProtocolError


class CloseReason(StrEnum):
    """The label of `kafka_sluice_closes_total` and the `reason` of the log line."""

    CLIENT_CLOSED = "client_closed"  # the client closed the connection in order
    CLIENT_RESET = "client_reset"
    CLIENT_GONE_WHILE_PAUSED = "client_gone_while_paused"  # from the kernel's TCP state, not from a read
    BROKER_CLOSED = "broker_closed"
    BROKER_RESET = "broker_reset"
    BROKER_SILENT = "broker_silent"  # its host sends nothing, not even an acknowledgement
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    FAILED_LOGINS = "failed_logins"  # too many logins of its address have failed
    MAX_CONNECTIONS_PER_IP = "max_connections_per_ip"
    IP_CONNECTION_RATE = "ip_connection_rate"  # held unread for its delay
    IP_CONNECTION_RATE_UNHELD = "ip_connection_rate_unheld"  # as above, but too many were held already
    MADE_ROOM = "made_room"  # to make room for a connection of the protected listener
    FRAME_SIZE = "frame_size"
    NOT_KAFKA_HTTP = "not_kafka_http"
    NOT_KAFKA_TLS = "not_kafka_tls"
    NOT_KAFKA_PROXY_HEADER = "not_kafka_proxy_header"
    PROXY_HEADER = "proxy_header"  # a load balancer sent no valid header
    PROXY_HEADER_DEADLINE = "proxy_header_deadline"
    NOT_TLS = "not_tls"  # the first bytes at a TLS port were not TLS
    TLS_HANDSHAKE = "tls_handshake"  # no common version or cipher, or no accepted certificate
    TLS_HANDSHAKE_DEADLINE = "tls_handshake_deadline"
    SERVER_NAME_UNKNOWN = "server_name_unknown"  # the client requested a host name (SNI) that is not a broker's, or none
    NO_PRINCIPAL = "no_principal"  # no mapping rule matches the subject of its certificate
    HEALTH_CHECK = "health_check"  # a health check of a load balancer
    BAD_HEADER = "bad_header"
    BAD_REQUEST = "bad_request"
    TOO_MANY_TOPICS = "too_many_topics"  # a request to create or delete topics has more elements than Sluice checks
    BAD_RESPONSE = "bad_response"
    RESPONSE_MISMATCH = "response_mismatch"
    RESPONSE_UNSOLICITED = "response_unsolicited"
    REWRITE_LIMIT = "rewrite_limit"
    API_UNKNOWN = "api_unknown"
    API_REFUSED = "api_refused"
    LOGIN_REQUIRED = "login_required"  # another request before a required login, or during one
    LOGIN_FAILED = "login_failed"  # the broker refused the login; then either side closed
    LOGIN_DEADLINE = "login_deadline"
    MECHANISM_REFUSED = "mechanism_refused"  # a SASL mechanism that is not allowed here, or whose unframed tokens cannot be followed
    PRINCIPAL_UNKNOWN = "principal_unknown"  # and the listener rejects such clients
    PRINCIPAL_CHANGED = "principal_changed"  # the client logged in again as another user
    MAX_CONNECTIONS_PER_PRINCIPAL = "max_connections_per_principal"
    UNMAPPED = "unmapped"
    FIRST_FRAME_DEADLINE = "first_frame_deadline"
    SLOW_FRAME = "slow_frame"
    SLOW_READER = "slow_reader"
    BUFFER_LIMIT = "buffer_limit"  # the process exceeds its buffer budget, and this connection holds most
    IDLE = "idle"
    HALF_CLOSE_DEADLINE = "half_close_deadline"  # the client had closed its side, and not all of its requests and responses passed in time
    DEPARTED_LIMIT = "departed_limit"  # the client had closed its side, and too many such connections of its address are served
    DRAIN = "drain"
    DRAIN_DEADLINE = "drain_deadline"
    WORKER_DIED = "worker_died"  # the worker that served it ended; others continue
    SHUTDOWN = "shutdown"
    INTERNAL_ERROR = "internal_error"


_BY_VALUE = {reason.value: reason for reason in CloseReason}


def reason_of(error: ProtocolError, *, otherwise: CloseReason) -> CloseReason:
    """Return the close reason of a protocol error; `otherwise` for a slug without a reason of its own."""
    return _BY_VALUE.get(error.reason, otherwise)
