"""Divides the groups of runs into shares, the same in all runs, which bounds the memory for large directories."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from pipeline.replay.rows import Ints

Identity = tuple[str | None, ...]
"""The name of a group, which is the same in every worker."""
OTHER_GROUPS: Final = -1
"""Group number of rows that `pieces` keeps for all shares of the groups, since they concern a whole run."""


@dataclass(frozen=True, slots=True)
class Share:
    """A subset of the groups: number `number` of `of` subsets."""

    number: int = 0
    of: int = 1


def share_of_group(ref: int, identity: Identity | None, of: int) -> int:
    """Return which of `of` subsets has a group. Without an identity its number decides, since no other run has the same group."""
    return (ref if identity is None else crc32(repr(identity).encode())) % of


@dataclass(frozen=True, slots=True)
class GroupShares:
    """The share of each group of a run.

    Attributes:
        refs: numbers of the groups with a description, ascending.
        shares: the share of each.
        of: number of shares.
    """

    refs: Ints
    shares: Ints
    of: int

    @classmethod
    def of_groups(cls, identities: Mapping[int, Identity | None], of: int, moved: Mapping[int, int] | None = None) -> "GroupShares":
        """Return the shares of some groups. Those of the groups `moved` are given."""
        refs, known = sorted(identities), moved or {}
        shares = [known[ref] if ref in known else share_of_group(ref, identities[ref], of) for ref in refs]
        return cls(np.array(refs, np.int64), np.array(shares, np.int64), of)

    def of_rows(self, table: pa.Table) -> Ints:
        """Return the share of each row of a table, also of the rows of groups without a description, which a damaged file set has."""
        refs = table.column("group_ref").to_numpy().astype(np.int64)
        found: Ints = refs % self.of
        at = np.searchsorted(self.refs, refs)
        described = np.flatnonzero(at < len(self.refs))
        described = described[self.refs[at[described]] == refs[described]]
        found[described] = self.shares[at[described]]
        return found

    def rows_of(self, table: pa.Table, number: int) -> pa.Table:
        """Return the rows of a share, without those for all shares."""
        if self.of == 1:
            return table
        others = table.column("group_ref").to_numpy() == OTHER_GROUPS
        return table.filter(pa.array((self.of_rows(table) == number) & ~others))
