"""Counts the bytes that the proxy keeps: everything that can be reached from it, independent of its own accounting."""

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


def kept_bytes(roots: Iterable[object]) -> int:
    """Return the total size of all large byte strings and texts that can be reached from `roots`; each object counts once."""
    seen: set[int] = set()
    found = 0
    waiting: list[Any] = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _ELSEWHERE):
            continue
        seen.add(id(one))
        if isinstance(one, memoryview):
            waiting.append(one.obj)
        elif isinstance(one, bytes | bytearray | str):
            found += len(one) if len(one) >= LARGE_BYTES else 0
        else:
            waiting.extend(gc.get_referents(one))
    return found
