"""Work of unknown size: a small amount runs on the event loop, a large one in a thread, so that connections do not wait."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE: Final = 256
"""So many entities, or lines, take a few milliseconds at most."""


async def offload(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return what `work` returns; it runs in a thread where `size`, the number of things that it looks at, is large.

    It must be pure, or work on objects that no other thread uses meanwhile.
    """
    if size <= AT_ONCE:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)
