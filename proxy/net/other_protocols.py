"""Other protocols whose clients often reach a Kafka port by mistake."""

from __future__ import annotations

from proxy.base.close_reason import CloseReason


def looks_like(data: bytes) -> CloseReason | None:
    """Return the close reason for the first bytes of another protocol; None: they may be Kafka's."""
    if data[:1] == b"\x16" and data[1:2] == b"\x03":
        return CloseReason.NOT_KAFKA_TLS
    if data[:6] == b"PROXY " or data[:12] == b"\r\n\r\n\x00\r\nQUIT\n":
        return CloseReason.NOT_KAFKA_PROXY_HEADER
    if data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PRI "):
        return CloseReason.NOT_KAFKA_HTTP
    return None
