"""Checks that each file set describes every group that has decisions in it."""

import numpy as np

from pipeline.errors import BadInputError
from pipeline.file_set import FileSet
from pipeline.replay.rows import Ints


def check_described(file_set: FileSet, group_ref: Ints, described: Ints) -> None:
    """Look for rows of groups without a description.

    Args:
        file_set: used in the message.
        group_ref: group number of each row.
        described: numbers of the groups in `dim_group` that can have such rows.

    Raises:
        BadInputError: there are such rows.
    """
    unknown = group_ref[group_ref < 0]
    if not len(unknown):
        is_known = np.zeros(int(max(group_ref.max(initial=-1), described.max(initial=-1))) + 1, np.bool_)
        is_known[described[described >= 0]] = True
        unknown = group_ref[~is_known[group_ref]]
    if len(unknown):
        raise BadInputError(
            f"{file_set.manifest.file_set}: rows of group {unknown[0]}, which dim_group does not name; the file is incomplete"
        )
