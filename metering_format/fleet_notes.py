"""What a member of a fleet meters besides the usage of the other members: why its total differs from what they reported.

Let `column` be the number of the fleet among the workers, in the setting `FLEET` of a run. Records with `column` as source are usage of the
other members. The sources after it belong to these records:

* `ASSUMED_NOW`: units that a decision assumed because usage is not known yet; right after the decision they are taken back.
* Notes, which are records of kind `SKIPPED`; the total is the sum of all amounts. With them the following is true of each group:

      what the other members reported = total of `column` + `LEFT_OUT` - `ASSUMED`

  up to `UNNAMED`, which is at least what was used before the group was named here.
"""

from typing import Final

ASSUMED_NOW: Final = 1
"""Offsets from `column`."""
ASSUMED: Final = 2
"""Units that were recorded because a member was not heard."""
LEFT_OUT: Final = 3
"""Units that a member reported and that were not recorded: they were assumed before, or are older than all samples."""
UNNAMED: Final = 4
"""The total that a member had in a group when the group was named here."""
