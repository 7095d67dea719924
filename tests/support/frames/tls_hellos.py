"""First messages of TLS clients: real ones, made by OpenSSL, and the pieces to write odd ones."""

import contextlib
import ssl


def hello(name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What OpenSSL sends first to a host of this name; None: to no particular host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = version
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def message_of(data: bytes) -> bytes:
    """The handshake message in one record."""
    return data[5:]


def records(message: bytes, *sizes: int) -> bytes:
    """A message cut into records of these sizes, and one with what is left."""
    cut, at = [], 0
    for size in (*sizes, len(message)):
        piece = message[at : at + size]
        at += size
        if piece:
            cut.append(b"\x16\x03\x01" + len(piece).to_bytes(2) + piece)
    return b"".join(cut)


def vector(content: bytes, size_bytes: int = 2) -> bytes:
    """Something behind its length."""
    return len(content).to_bytes(size_bytes) + content


def written(*extensions: tuple[int, bytes], bare: bool = False) -> bytes:
    """A hello with these extensions and little else; `bare`: without the field of extensions."""
    body = b"\x03\x03" + bytes(32) + vector(b"", 1) + vector(b"\xc0\x2b") + vector(b"\0", 1)
    if not bare:
        body += vector(b"".join(kind.to_bytes(2) + vector(content) for kind, content in extensions))
    return records(b"\x01" + vector(body, 3))


def host_name(name: bytes, kind: int = 0) -> tuple[int, bytes]:
    """The extension that names a host."""
    return 0, vector(bytes([kind]) + vector(name))
