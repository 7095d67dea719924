"""Encodes messages between processes as MessagePack, including strings that are not valid Unicode, which clients may send."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_PLAIN: Final = b"\x00"
_ESCAPED: Final = b"\x01"
_BYTES: Final = 1


def _plain_text(value: object) -> str:
    """Return a `KeptName` as a plain str."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"no message has a {type(value).__name__}")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain_text)


def pack(value: object) -> bytes:
    """Return a value as bytes."""
    try:
        return _PLAIN + _encoder.encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return _ESCAPED + _encoder.encode(_bytes_for_texts(msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_plain_text)))


def unpack(packed: bytes, kind: type[T]) -> T:
    """Return the value that was packed.

    Raises:
        msgspec.DecodeError: it is not of this type.
    """
    body = memoryview(packed)[1:]
    if packed[:1] == _PLAIN:
        return msgspec.msgpack.decode(body, type=kind)
    return msgspec.convert(_texts_for_bytes(msgspec.msgpack.decode(body)), kind)


def _bytes_for_texts(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "surrogatepass")
        case bytes():
            return msgspec.msgpack.Ext(_BYTES, value)
        case tuple():
            return tuple(_bytes_for_texts(one) for one in value)
        case list():
            return [_bytes_for_texts(one) for one in value]
        case dict():
            return {_bytes_for_texts(key): _bytes_for_texts(one) for key, one in value.items()}
        case _:
            return value


def _texts_for_bytes(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode("utf-8", "surrogatepass")
        case msgspec.msgpack.Ext():
            return bytes(value.data)
        case tuple():  # the key of a mapping
            return tuple(_texts_for_bytes(one) for one in value)
        case list():
            return [_texts_for_bytes(one) for one in value]
        case dict():
            return {_texts_for_bytes(key): _texts_for_bytes(one) for key, one in value.items()}
        case _:
            return value
