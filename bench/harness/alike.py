"""Processes that differ by their settings alone."""

import functools
import shutil
import subprocess
from collections.abc import Sequence

_FIXED_LAYOUT = ("setarch", "--addr-no-randomize")


def alike(command: Sequence[str], seed: int) -> list[str]:
    """Return a command whose process lays out dictionaries by `seed`, and its memory as every other one, where the system allows that.

    Both move what a request costs by some percent from one process to the next; other seeds move it elsewhere.
    """
    return ["env", f"PYTHONHASHSEED={seed}", *_layout(), *command]


@functools.cache
def _layout() -> tuple[str, ...]:
    """A container may forbid it."""
    if shutil.which(_FIXED_LAYOUT[0]) is None:
        return ()
    return _FIXED_LAYOUT if subprocess.run([*_FIXED_LAYOUT, "true"], capture_output=True, check=False).returncode == 0 else ()
