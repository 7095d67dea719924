"""A metering directory as messages of a topic, in the form of a publisher."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from metering_format.places import PART_HEADER, PATH_HEADER
from proxy.metering.topic import parts_of

Message = tuple[str, str, bytes]
"""Path, part, value."""


def messages_of(directory: Path) -> Iterator[Message]:
    """Return all files of one file set as messages, the manifest last."""
    paths = [path.relative_to(directory) for path in directory.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.parts[0] == "manifests", path)):
        for part, value in parts_of((directory / path).read_bytes()):
            yield str(path), part, value


def in_order(directory: Path) -> Iterator[Message]:
    """Return the messages of all file sets, in order."""
    every = list(messages_of(directory))
    for file_set in sorted({Path(path).stem for path, *_ in every}):
        yield from (message for message in every if Path(message[0]).stem == file_set)


def publish(topic: str, messages: Iterable[Message], key: str = "sluice-1") -> None:
    """Send messages to kafka://HOST:PORT/TOPIC."""
    from confluent_kafka import Producer

    servers, _, name = topic.removeprefix("kafka://").partition("/")
    producer = Producer({"bootstrap.servers": servers})
    for path, part, value in messages:
        producer.produce(name, value, key, headers=[(PATH_HEADER, path.encode()), (PART_HEADER, part.encode())])
    assert producer.flush(30) == 0
