"""Archives of loaded classes (class data sharing): a JVM that maps one starts in half of the time.

An archive is made by the first JVM that runs with `keeping`, when it ends. A JVM ignores an archive of other jars or of another JDK.
"""

from pathlib import Path
from typing import Final

_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # an archive of other classes is no reason for a line on stdout


def using(archive: Path) -> list[str]:
    """Return the options of a JVM that uses an archive, if there is one."""
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.exists() else []


def keeping(archive: Path) -> list[str]:
    """Return the options of a JVM that writes an archive when it ends, unfinished under another name: see `finish`."""
    unfinished(archive).unlink(missing_ok=True)
    archive.parent.mkdir(parents=True, exist_ok=True)
    return [f"-XX:ArchiveClassesAtExit={unfinished(archive)}", *_QUIET]


def unfinished(archive: Path) -> Path:
    """Return the name of an archive that is being written."""
    return archive.with_suffix(".part")


def finish(archive: Path) -> None:
    """Give a written archive its name; the JVM has ended. Nothing happens if it wrote none."""
    if unfinished(archive).exists():
        unfinished(archive).replace(archive)
