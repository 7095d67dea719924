"""Lines of problems of a configuration, without their place."""

import re
from collections.abc import Iterable
from pathlib import Path


def without_place(lines: Iterable[str], file: Path | str) -> list[str]:
    """Return lines without the name of the file and the line number that each begins with."""
    return [re.sub(rf"^{re.escape(str(file))}(:\d+)?: ", "", line) for line in lines]
