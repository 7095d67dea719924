"""ClientHellos of TLS: real ones, made by OpenSSL, and the parts to write unusual ones."""

import contextlib
import ssl


def hello(name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Return OpenSSL's ClientHello for a host of this name; None: without a host name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = version
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def message_of(data: bytes) -> bytes:
    """Return the handshake message of one record."""
    return data[5:]


def records(message: bytes, *sizes: int) -> bytes:
    """Return a message in records of these sizes, and one with the rest."""
    cut, at = [], 0
    for size in (*sizes, len(message)):
        piece = message[at : at + size]
        at += size
        if piece:
            cut.append(b"\x16\x03\x01" + len(piece).to_bytes(2) + piece)
    return b"".join(cut)


def vector(content: bytes, size_bytes: int = 2) -> bytes:
    """Return bytes after their length."""
    return len(content).to_bytes(size_bytes) + content


def written(*extensions: tuple[int, bytes], bare: bool = False) -> bytes:
    """Return a ClientHello with these extensions and little else; `bare`: without the field of extensions."""
    body = b"\x03\x03" + bytes(32) + vector(b"", 1) + vector(b"\xc0\x2b") + vector(b"\0", 1)
    if not bare:
        body += vector(b"".join(kind.to_bytes(2) + vector(content) for kind, content in extensions))
    return records(b"\x01" + vector(body, 3))


def host_name(name: bytes, kind: int = 0) -> tuple[int, bytes]:
    """Return the extension with a host name."""
    return 0, vector(bytes([kind]) + vector(name))
