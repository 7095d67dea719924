"""Work of unknown size: a small amount runs on the event loop, a large one in a thread, so that connections do not wait."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INLINE_ITEMS_MAX: Final = 256
"""So many entities, or lines, take a few milliseconds at most."""


async def offload(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of `work`, which runs in a thread when `size`, the number of items, is large.

    `work` must have no side effects, or use only objects that no other thread uses meanwhile.
    """
    if size <= INLINE_ITEMS_MAX:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)
