"""The settings with which a command starts Spark, as its options give them."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from pipeline.errors import BadInputError

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Environment variable that `spark-submit` sets for the program that it starts."""
DRIVER_MEMORY: Final = "spark.driver.memory"
FIXED: Final = {
    "spark.sql.session.timeZone": "tables have times in UTC",
    "spark.master": "write --master",
    "spark.submit.deployMode": "the command itself is the driver",
    DRIVER_MEMORY: "write --driver-memory",
}
"""Settings that `--conf` may not change, and why."""
_SIZE: Final = re.compile(r"[1-9][0-9]*[mMgG]")


class SessionSettings(NamedTuple):
    """How Spark starts.

    Attributes:
        master: URL of the Spark master; None: the master of `spark-submit`, or else all cores of this machine.
        verbose: write Spark's warnings and errors to stderr.
        conf: further settings of Spark, which precede those of the pipeline.
        driver_memory: size of the JVM's heap, such as 8g; None: half of the memory.
    """

    master: str | None = None
    verbose: bool = False
    conf: tuple[tuple[str, str], ...] = ()
    driver_memory: str | None = None


DEFAULTS: Final = SessionSettings()


def read_conf(pairs: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings of the options `--conf KEY=VALUE`.

    Raises:
        BadInputError: one is not of this form, is no setting of Spark, or may not be changed.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise BadInputError(f'--conf: "{pair}" is no setting of Spark; write spark.KEY=VALUE')
        if key in FIXED:
            raise BadInputError(f"--conf {key}: cannot be set here: {FIXED[key]}")
        found[key] = value
    return tuple(found.items())


def read_driver_memory(text: str | None) -> str | None:
    """Return the size of `--driver-memory`.

    Raises:
        BadInputError: it is no size that a JVM starts with.
    """
    if text is not None and not _SIZE.fullmatch(text):
        raise BadInputError(f'--driver-memory: "{text}" is no size; write a number with m or g, such as 8g')
    return text
