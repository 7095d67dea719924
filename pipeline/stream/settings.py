"""The settings of a stream, and their checks. Needs no Spark."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.errors import BadInputError, IncompleteError
from pipeline.files import check_directory
from pipeline.storage.paths import FILE_SCHEME
from pipeline.stream.brokers import check_brokers
from pipeline.stream.defaults import MESSAGES_MAX
from pipeline.stream.ledger import check_checkpoint
from pipeline.stream.listing import Listed, Listing
from sluice.object_store import is_url

TOPIC: Final = "kafka://"
FIRST_READ: Final = 64
"""Number of manifests that are read before Spark starts."""
LANDED: Final = "landed"
"""Folder of a topic's files."""


Place = Path | str
"""A path of this machine, or a URL that Hadoop knows."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Source and output of a stream.

    Attributes:
        source: a metering directory, its URL, or kafka://HOST:PORT[,HOST:PORT]/TOPIC.
        out: the directory of the tables and of a topic's files; None: the tables are elsewhere.
        once: end when all present file sets have been read.
        properties: file of Kafka's client properties, for a topic; each worker reads it.
        messages_max: highest number of messages of a batch of a topic.
        in_tables: the rows and the state are in tables of Iceberg or Delta. Then `out` has only a topic's files.
    """

    source: str
    checkpoint: Place
    out: Place | None
    once: bool = False
    properties: Path | None = None
    messages_max: int = MESSAGES_MAX
    in_tables: bool = False

    @property
    def directory(self) -> Place:
        """The metering directory: the source, or where the files of a topic land."""
        if not self.is_topic:
            return self.source if is_url(self.source) else Path(self.source.removeprefix(FILE_SCHEME)).resolve()
        assert self.out is not None
        return (self.out / LANDED).resolve() if isinstance(self.out, Path) else f"{self.out.rstrip('/')}/{LANDED}"

    @property
    def directory_of_source(self) -> Place | None:
        """The metering directory that is followed; None: the source is a topic."""
        return None if self.is_topic else self.directory

    @property
    def is_topic(self) -> bool:
        """Whether the source is a topic."""
        return self.source.startswith(TOPIC)


def check_settings(settings: StreamSettings) -> None:
    """Check what is on this machine before anything is started. Only Spark can check URLs.

    Raises:
        BadInputError: the source, the checkpoint or the output cannot be used.
        IncompleteError: `once` is set and the source is empty.
    """
    if settings.properties is not None and not settings.is_topic:
        raise BadInputError(f"--command-config {settings.properties}: is for a topic, and --from names a directory; leave it out")
    if isinstance(settings.directory_of_source, Path):
        _check_source(settings.directory_of_source, once=settings.once)
    if isinstance(settings.checkpoint, Path):
        check_directory(settings.checkpoint)
    if isinstance(settings.out, Path):
        check_directory(settings.out)
        if not settings.in_tables and isinstance(settings.checkpoint, Path):
            check_checkpoint(settings.out, settings.checkpoint)
    if settings.is_topic:
        _check_topic(settings)


def check_listed(there: Listed) -> None:
    """Check that `once` has something to read.

    Raises:
        IncompleteError: the directory has no manifest.
    """
    if not there.sizes:
        raise IncompleteError(f"{there.directory}: contains no manifest, so no file set is finished; leave out --once to wait for them")


def topic_of(source: str) -> tuple[str, str]:
    """Return the servers and the topic of a source.

    Raises:
        BadInputError: one of them is missing.
    """
    servers, _, topic = source.removeprefix(TOPIC).partition("/")
    if not servers or not topic:
        raise BadInputError(f"--from {source}: write kafka://HOST:PORT/TOPIC")
    return servers, topic


def _check_topic(settings: StreamSettings) -> None:
    if settings.out is None:
        raise BadInputError(
            f"--from {settings.source}: files of a topic need a directory, and tables of a catalog have none; name one with --out"
        )
    check_brokers(settings.source, topic_of(settings.source)[0], settings.properties)


def _check_source(directory: Path, *, once: bool) -> None:
    if not directory.is_dir():
        raise BadInputError(f"{directory}: no such directory; name a directory that `sluice run --metering` writes")
    there = Listing(directory).now()
    if once:
        check_listed(there)
        there.read(sorted(there.sizes)[:FIRST_READ])  # an error ends the command before Spark starts and before anything is written
