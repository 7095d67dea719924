"""Limits of a request for changes; a larger one is refused entry by entry, before its content is checked."""

from __future__ import annotations

from typing import Final

from quota.admin.messages import Alteration

ENTRIES_MAX: Final = 1_000
PARTS_MAX: Final = 3
OPS_MAX: Final = 16
NAME_BYTES_MAX: Final = 1_024
"""Maximum length in UTF-8 bytes of a user, client-id or address, of an entity's type, and of a quota's key."""


def too_large(alteration: Alteration, entries: int) -> str | None:
    """Return the limit that an alteration exceeds, in a request with `entries` entries; None: it exceeds none."""
    if entries > ENTRIES_MAX:
        return f"A request may alter at most {ENTRIES_MAX} entities, this one has {entries}."
    if len(alteration.parts) > PARTS_MAX:
        return f"An entity has at most {PARTS_MAX} parts, this one has {len(alteration.parts)}."
    if len(alteration.ops) > OPS_MAX:
        return f"An entity may have at most {OPS_MAX} changes in a request, this one has {len(alteration.ops)}."
    texts = [text for part in alteration.parts for text in part if text is not None] + [op.key for op in alteration.ops]
    if any(len(text.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX for text in texts):
        return f"A name may have at most {NAME_BYTES_MAX} bytes."
    return None
