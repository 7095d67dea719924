"""Kinds of decisions, as column `kind` of `events` has them. The writer notes decisions under the same numbers."""

from typing import Final

RECORD: Final = 0
UNCHECKED: Final = 1
UNRECORD: Final = 2
NOTE: Final = 3
"""What nothing recorded: a fetch that waits. From here on no sensor records."""
CHARGED: Final = 4
REFUSED: Final = 5
OWED: Final = 6
SETTLED: Final = 7
ASKED: Final = 8
"""Controller mutations: counted, since the balance was not below zero; refused, since it was; counted whatever the balance, and waited for
behind (permissive); the difference to what was counted, when the answer says what really happened; asked and not below zero, while another
bucket of the same chain of groups refused."""

REMOTE: Final = 9
SKIPPED: Final = 10
"""Usage that another process recorded: recorded here too, unchecked, when it became known; only noted, since it is older than all samples
or amounts to nothing: a group that begins to count with others notes its own process so, with the total that it found."""

OF_BUCKETS: Final = (CHARGED, REFUSED, OWED, SETTLED, ASKED)

MUTATION: Final = "ControllerMutation"
"""The quota type whose decisions have the kinds `OF_BUCKETS`: token buckets measure it."""

EXCUSED_MS: Final = -1
"""`applied_ms` of a connection that waits for nothing, because it keeps a group membership alive."""
