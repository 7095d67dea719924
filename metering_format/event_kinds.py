"""Kinds of decisions: the values of column `kind` in table `events`. The writer uses the same numbers."""

from typing import Final

RECORD: Final = 0
UNCHECKED: Final = 1
UNRECORD: Final = 2
NOTE: Final = 3
"""A decision that recorded nothing: a fetch that waits. This and all higher numbers belong to no sensor."""
CHARGED: Final = 4
REFUSED: Final = 5
OWED: Final = 6
SETTLED: Final = 7
ASKED: Final = 8
"""Controller mutations: CHARGED, since the balance was not below zero; REFUSED, since it was; OWED: counted whatever the balance, and
throttled afterwards (permissive); SETTLED: the difference to the first count by the response; ASKED: checked and not below zero, while
another bucket of the same chain of groups refused."""

REMOTE: Final = 9
SKIPPED: Final = 10
"""REMOTE: usage that another process recorded, recorded here too, unchecked, when it became known (fetches of
other members of a fleet: up to a second before, in the order of records). SKIPPED: only noted, because it is older
than all samples, or the first total of a group that begins to share usage."""

OF_BUCKETS: Final = (CHARGED, REFUSED, OWED, SETTLED, ASKED)

MUTATION: Final = "ControllerMutation"
"""The quota type whose decisions have the kinds `OF_BUCKETS`, since token buckets measure it."""

EXCUSED_MS: Final = -1
"""`applied_ms` of a connection that is not delayed, because it keeps a group membership alive."""
