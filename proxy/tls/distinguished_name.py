"""A certificate's subject in Kafka's notation.

Kafka uses Java's `X500Principal.getName()`: RFC 2253, most specific part first, attributes without a short name as
object identifier and hexadecimal DER.

`rfc4514_string` of `cryptography.x509` returns other text, by which mapping rules would find other principals. It does not escape "=",
writes the text of an attribute without a short name (`2.5.4.12=t`, Java: `2.5.4.12=#0c0174`), and decodes each string type by its own
encoding, where Java 17 uses UTF-8. Its `Name` does not keep the DER of a value either, so the name is parsed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS: Final = {0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E}
"""Tags of the string types. Java 17 decodes all of them as UTF-8, also those with another encoding."""
_ESCAPED: Final = ',=+<>#;"\\'
_LONG_FORM: Final = 0x80


def distinguished_name(name: bytes) -> str:
    """Return a DER-encoded `Name` in Kafka's notation.

    Raises:
        ValueError: the bytes are not a `Name`.
    """
    try:
        parts = list(_values(next(_elements(name))[1]))
        return ",".join("+".join(_attribute(attribute) for attribute in _values(part)) for part in reversed(parts))
    except (IndexError, StopIteration) as error:
        raise ValueError("the name of a certificate's subject is not valid DER") from error


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, contents and all bytes of each element of a DER sequence."""
    at = 0
    while at < len(data):
        tag, size, begin = data[at], data[at + 1], at + 2
        if size & _LONG_FORM:
            size_bytes = size ^ _LONG_FORM
            size = int.from_bytes(data[begin : begin + size_bytes])
            begin += size_bytes
        end = begin + size
        if end > len(data):
            raise ValueError("the name of a certificate's subject ends within an element")
        yield tag, data[begin:end], data[at:end]
        at = end


def _values(data: bytes) -> Iterator[bytes]:
    return (contents for _, contents, _ in _elements(data))


def _attribute(attribute: bytes) -> str:
    (_, oid, _), (tag, contents, whole) = _elements(attribute)
    number = _oid(oid)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{whole.hex()}"
    return f"{keyword}={_escaped(contents.decode('utf-8', 'replace'))}"


def _oid(contents: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in contents:
        number = number << 7 | byte & 0x7F
        if not byte & _LONG_FORM:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escaped(value: str) -> str:
    """Escape the characters that RFC 2253 reserves, NUL, and spaces at both ends."""
    text = "".join("\\00" if char == "\0" else "\\" + char if char in _ESCAPED else char for char in value)
    inner = text.strip(" \r")
    if not inner:
        return "".join("\\" + char for char in text)
    begin = text.index(inner)
    before, after = text[:begin], text[begin + len(inner) :]
    return "".join("\\" + char for char in before) + inner + "".join("\\" + char for char in after)
