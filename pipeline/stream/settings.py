"""The settings of a stream, and their checks. Needs no Spark."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metering_format.places import MANIFESTS
from pipeline.errors import BadInputError, IncompleteError
from pipeline.files import check_directory, check_readable
from pipeline.manifest import find_manifests, manifest_paths
from pipeline.stream.brokers import check_brokers
from pipeline.stream.defaults import MESSAGES_MAX
from pipeline.stream.ledger import check_checkpoint

TOPIC: Final = "kafka://"
LANDED: Final = "landed"
"""Folder of a topic's files."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Source and output of a stream.

    Attributes:
        source: a metering directory, or kafka://HOST:PORT[,HOST:PORT]/TOPIC.
        out: the folder of the tables and of a topic's files; None: the tables are elsewhere.
        once: end when all present file sets have been read.
        properties: file of Kafka's client properties, for a topic; each worker reads it.
        messages_max: highest number of messages of a batch of a topic.
        in_tables: the rows and the state are in tables of Iceberg or Delta. Then `out` has only a topic's files.
    """

    source: str
    checkpoint: Path
    out: Path | None
    once: bool = False
    properties: Path | None = None
    messages_max: int = MESSAGES_MAX
    in_tables: bool = False

    @property
    def directory(self) -> Path:
        """The metering directory: the source, or where the files of a topic land."""
        if not self.is_topic:
            return Path(self.source).resolve()
        assert self.out is not None
        return (self.out / LANDED).resolve()

    @property
    def is_topic(self) -> bool:
        """Whether the source is a topic."""
        return self.source.startswith(TOPIC)


def check_settings(settings: StreamSettings) -> None:
    """Check the settings before anything is started.

    Raises:
        BadInputError: the source, the checkpoint or the output cannot be used.
        IncompleteError: `once` is set and the source is empty.
    """
    if settings.properties is not None and not settings.is_topic:
        raise BadInputError(f"--command-config {settings.properties}: is for a topic, and --from names a directory; leave it out")
    if not settings.is_topic:
        _check_source(settings)
    check_directory(settings.checkpoint)
    if settings.out is not None:
        check_directory(settings.out)
        if not settings.in_tables:
            check_checkpoint(settings.out, settings.checkpoint)
    if settings.is_topic:
        if settings.out is None:
            raise BadInputError(
                f"--from {settings.source}: files of a topic need a folder, and tables of a catalog have none; use --sink delta"
            )
        check_brokers(settings.source, topic_of(settings.source)[0], settings.properties)


def topic_of(source: str) -> tuple[str, str]:
    """Return the servers and the topic of a source.

    Raises:
        BadInputError: one of them is missing.
    """
    servers, _, topic = source.removeprefix(TOPIC).partition("/")
    if not servers or not topic:
        raise BadInputError(f"--from {source}: write kafka://HOST:PORT/TOPIC")
    return servers, topic


def _check_source(settings: StreamSettings) -> None:
    directory = Path(settings.source)
    if "://" in settings.source:
        raise BadInputError(f"--from {settings.source}: only local directories and kafka://HOST:PORT/TOPIC can be followed")
    if not directory.is_dir():
        raise BadInputError(f"{directory}: no such directory; name a directory that `sluice run --metering` writes")
    check_readable(directory / MANIFESTS)
    if settings.once and not manifest_paths(directory):
        raise IncompleteError(f"{directory}: contains no manifest, so no file set is finished; leave out --once to wait for them")
    if settings.once:
        find_manifests(directory)  # errors end the command before Spark starts and before anything is written
    if not (directory / MANIFESTS).is_dir():
        check_directory(directory / MANIFESTS)
