"""The interface of the audit log; a line is written before a change is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from proxy.quota_admin.requester import Requester
from quota.admin.messages import EntityKey

Event = Mapping[str, Any]
"""The content of one line: the name `event` and its values, which are strings, numbers, None, and lists and tables of these."""


class AuditUnavailable(Exception):
    """A line could not be written; `str` is one line with file, problem and remedy."""


class AuditTrail(Protocol):
    """Stores lines; each line has the digest of the previous one."""

    async def append(self, events: Sequence[Event]) -> int:
        """Write lines; return the number of the first one after all are on the disk.

        Raises:
            AuditUnavailable: the lines could not be written.
        """


def who(requester: Requester) -> dict[str, str | None]:
    """Return the fields of a line that identify a requester."""
    return {"way": requester.way, "principal": requester.principal, "peer": requester.peer, "listener": requester.listener}


def entity_table(entity: EntityKey) -> dict[str, str | None]:
    """Return an entity in the form of a line: null is the default entity."""
    return dict(entity)
