"""Counts the bytes that the proxy keeps: everything that can be reached from it, independent of its own accounting."""

import functools
import gc
import types
from collections.abc import Iterable
from typing import Any, Final

from tests.adversary.memory_tcp import Kernel, MemorySocket, MemoryTransport
from tests.adversary.virtual_loop import VirtualLoop

LARGE_BYTES: Final = 1_024
"""Smaller objects are not counted: heads, names, parts of the code."""
_ELSEWHERE: Final = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    VirtualLoop,
    Kernel,
    MemorySocket,
    MemoryTransport,
)
"""Objects that do not belong to sessions and tables: code, the loop, the kernel, and transports, which are counted separately."""


_ATOMS: Final = (int, float, type(None))


def kept_bytes(roots: Iterable[object]) -> int:
    """Return the total size of all large byte strings and texts that can be reached from `roots`; each object counts once."""
    seen: set[int] = set()
    found = 0
    waiting: list[Any] = list(roots)
    while waiting:
        one = waiting.pop()
        kind = _kind_of(type(one))
        if kind is None or id(one) in seen:
            continue
        seen.add(id(one))
        if kind is bytes:
            found += len(one) if len(one) >= LARGE_BYTES else 0
        elif kind is memoryview:
            waiting.append(one.obj)
        else:
            waiting.extend(gc.get_referents(one))
    return found


@functools.cache
def _kind_of(its_type: type) -> type | None:
    """Return what to do with objects of a type: `bytes` count, `memoryview` has another object, `object` has others, None: skip."""
    if issubclass(its_type, (*_ELSEWHERE, *_ATOMS)):
        return None
    if issubclass(its_type, bytes | bytearray | str):
        return bytes
    return memoryview if issubclass(its_type, memoryview) else object
