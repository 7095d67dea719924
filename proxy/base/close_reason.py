"""Every way a connection can end. Each closed connection has exactly one of these."""

from __future__ import annotations

from enum import StrEnum

from protocol.errors import ProtocolError


class CloseReason(StrEnum):
    """The label of `kafka_sluice_closes_total` and the `reason` of the log line."""

    CLIENT_CLOSED = "client_closed"  # the client ended the connection in order
    CLIENT_RESET = "client_reset"
    CLIENT_GONE_WHILE_PAUSED = "client_gone_while_paused"  # seen in the kernel's TCP state, not by reading
    BROKER_CLOSED = "broker_closed"
    BROKER_RESET = "broker_reset"
    BROKER_SILENT = "broker_silent"  # nothing comes from its machine, not even an acknowledgement
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    FAILED_LOGINS = "failed_logins"  # its address failed to log in too often
    MAX_CONNECTIONS_PER_IP = "max_connections_per_ip"
    IP_CONNECTION_RATE = "ip_connection_rate"  # held unread for its delay
    IP_CONNECTION_RATE_UNHELD = "ip_connection_rate_unheld"  # as above, when too many were held already
    MADE_ROOM = "made_room"  # for a connection of the protected listener
    FRAME_SIZE = "frame_size"
    NOT_KAFKA_HTTP = "not_kafka_http"
    NOT_KAFKA_TLS = "not_kafka_tls"
    NOT_KAFKA_PROXY_HEADER = "not_kafka_proxy_header"
    PROXY_HEADER = "proxy_header"  # a load balancer of ours sent none, or one that may not be sent
    PROXY_HEADER_DEADLINE = "proxy_header_deadline"
    NOT_TLS = "not_tls"  # something else came to a port for TLS
    TLS_HANDSHAKE = "tls_handshake"  # no version, cipher or certificate that both accept
    TLS_HANDSHAKE_DEADLINE = "tls_handshake_deadline"
    SERVER_NAME_UNKNOWN = "server_name_unknown"  # the client asked for a host (SNI) that stands for no broker here, or for none
    NO_PRINCIPAL = "no_principal"  # no mapping rule applies to the subject of its certificate
    HEALTH_CHECK = "health_check"  # a load balancer only checked the port
    BAD_HEADER = "bad_header"
    BAD_REQUEST = "bad_request"
    TOO_MANY_TOPICS = "too_many_topics"  # a request to make or delete topics has more in it than is judged
    BAD_RESPONSE = "bad_response"
    RESPONSE_MISMATCH = "response_mismatch"
    RESPONSE_UNSOLICITED = "response_unsolicited"
    REWRITE_LIMIT = "rewrite_limit"
    API_UNKNOWN = "api_unknown"
    API_REFUSED = "api_refused"
    LOGIN_REQUIRED = "login_required"  # something else was asked for before a login that is declared, or in the middle of one
    LOGIN_DEADLINE = "login_deadline"
    MECHANISM_REFUSED = "mechanism_refused"  # of SASL: not among the listener's, or one whose bare tokens cannot be followed
    PRINCIPAL_UNKNOWN = "principal_unknown"  # and the listener rejects such clients
    PRINCIPAL_CHANGED = "principal_changed"  # the client logged in again as another user
    MAX_CONNECTIONS_PER_PRINCIPAL = "max_connections_per_principal"
    UNMAPPED = "unmapped"
    FIRST_FRAME_DEADLINE = "first_frame_deadline"
    SLOW_FRAME = "slow_frame"
    SLOW_READER = "slow_reader"
    BUFFER_LIMIT = "buffer_limit"  # the process keeps as much as it may, and this one holds most
    IDLE = "idle"
    HALF_CLOSE_DEADLINE = "half_close_deadline"  # the client had closed its side, and not all of its requests and responses passed in time
    DEPARTED_LIMIT = "departed_limit"  # it had closed its side, and as many connections of its address are served after that as may be
    DRAIN = "drain"
    DRAIN_DEADLINE = "drain_deadline"
    WORKER_DIED = "worker_died"  # the process that served it ended; others go on
    SHUTDOWN = "shutdown"
    INTERNAL_ERROR = "internal_error"


_BY_VALUE = {reason.value: reason for reason in CloseReason}


def reason_of(error: ProtocolError, *, otherwise: CloseReason) -> CloseReason:
    """The close reason of a protocol error; `otherwise` for a slug that has no reason of its own."""
    return _BY_VALUE.get(error.reason, otherwise)
