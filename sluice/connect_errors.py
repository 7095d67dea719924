"""Why a connection could not be used, in words that name the remedy: TLS or not, a certificate, or a port of another protocol."""

import os
import socket
import ssl
from typing import Final

_NO_TLS: Final = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST"}
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")


def connect_error(error: BaseException, *, tls: bool = False) -> str:
    """Return the reason why a connection failed; `tls`: it was opened with TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); add its certificate authority to the trusted ones"
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "the port answers without TLS; connect without TLS, or name the port for it"
    if tls and isinstance(error, ConnectionResetError):
        return "the connection was closed during the TLS handshake; does this port use TLS?"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno)  # asyncio puts its own words and the address into the error
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def other_protocol(beginning: bytes) -> str | None:
    """Return what the first bytes of a response are, if they are no Kafka; None: they may be.

    Args:
        beginning: four bytes or more.
    """
    if beginning[:4] == b"HTTP":
        return "an HTTP response: this is no Kafka port, but perhaps the admin port"
    if beginning[:2] in _TLS_RECORDS:
        return "a TLS record: this port requires TLS (security.protocol SSL or SASL_SSL)"
    return None
