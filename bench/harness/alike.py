"""Processes that differ in their settings only."""

import functools
import shutil
import subprocess
from collections.abc import Sequence

_FIXED_LAYOUT = ("setarch", "--addr-no-randomize")


def alike(command: Sequence[str], seed: int) -> list[str]:
    """Return a command whose process hashes with `seed` and has a fixed memory layout, where the system allows that.

    Both change the cost of a request by some percent from one process to the next; another seed changes it differently.
    """
    return ["env", f"PYTHONHASHSEED={seed}", *_layout(), *command]


@functools.cache
def _layout() -> tuple[str, ...]:
    """Return the command prefix that fixes the memory layout; a container may forbid it."""
    if shutil.which(_FIXED_LAYOUT[0]) is None:
        return ()
    return _FIXED_LAYOUT if subprocess.run([*_FIXED_LAYOUT, "true"], capture_output=True, check=False).returncode == 0 else ()
