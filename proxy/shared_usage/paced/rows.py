"""A row about a member of a paced group, requested again while there is none."""

from __future__ import annotations

from proxy.shared_usage.usage_row import UsageRow, UsageRows
from quota.groups.group import GroupKey


class MemberRow:
    """The row of a name among the members of one group.

    Args:
        rows: the rows of the quota type and scope.
        key: the key of the group.
        name: text that is the same in every process.
        is_of_fleet: whether the fleet shares it.

    Attributes:
        row: the row; None: there is none now.
    """

    __slots__ = ("_claim_ms", "_is_of_fleet", "_key", "_name", "_rows", "row")

    def __init__(self, rows: UsageRows, key: GroupKey, name: str, *, is_of_fleet: bool = False) -> None:
        self._rows = rows
        self._key = key
        self._name = name
        self.row: UsageRow | None = None
        self._claim_ms = 0
        self._is_of_fleet = is_of_fleet

    def held(self) -> UsageRow | None:
        """Return the row, if it still belongs to the member."""
        row = self.row
        return row if row is not None and row.is_held() else None

    def claim(self, now_ms: int) -> UsageRow | None:
        """Request a row, in place of one that belongs to another member now; None: there is none now."""
        self.row = None
        if now_ms < self._claim_ms:
            return None
        claimed = self._rows.claim_member(self._key, self._name, now_ms, is_of_fleet=self._is_of_fleet)
        if isinstance(claimed, int):
            self._claim_ms = now_ms + max(1, claimed)
            return None
        self.row = claimed
        return claimed

    def release(self) -> None:
        """Stop using the row."""
        if self.row is not None:
            self.row.release()
            self.row = None
