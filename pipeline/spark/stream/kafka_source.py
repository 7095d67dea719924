"""Chooses the source of a topic: Spark's own Kafka source where its jar is there, otherwise the one in Python.

Their offsets have different forms, so a stream keeps the source that its checkpoint began with. A topic that needs TLS or a login is read
in Python: Spark's source would take passwords as options, which are part of a query.
"""

import json
from typing import Any, Final

from pyspark.errors import PySparkException

from metering_format.places import PART_HEADER, PATH_HEADER
from pipeline.errors import BadInputError
from pipeline.spark.stream.topic_source import NAME, TopicSource
from pipeline.storage.paths import AnyPath, listed_below
from pipeline.stream.settings import StreamSettings, topic_of

JAR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
KAFKA: Final = "kafka"
_ABSENT: Final = ("Failed to find data source", "DATA_SOURCE_NOT_FOUND")
_COLUMNS: Final = (
    "partition",
    "offset",
    f"CAST(get(filter(headers, one -> one.key = '{PATH_HEADER}'), 0).value AS string) AS path",
    f"CAST(get(filter(headers, one -> one.key = '{PART_HEADER}'), 0).value AS string) AS part",
    "coalesce(value, X'') AS value",
)
"""Those of `topic_source.SCHEMA`."""


def messages(spark: Any, settings: StreamSettings, checkpoint: AnyPath) -> Any:
    """Return the messages of a topic as a stream.

    Args:
        spark: the session.
        settings: of the stream.
        checkpoint: its checkpoint.

    Raises:
        BadInputError: the checkpoint belongs to a source that cannot read the topic.
    """
    began_with = source_of(checkpoint)
    if began_with == NAME or (began_with is None and settings.properties is not None):
        return _in_python(spark, settings)
    if settings.properties is not None:
        raise BadInputError(
            f"--checkpoint {checkpoint}: began with Spark's own Kafka source, which does not read --command-config;"
            " name an empty directory, and an empty --out"
        )
    try:
        return _by_spark(spark, settings)
    except PySparkException as error:
        if not any(mark in str(error) for mark in _ABSENT):
            raise
        if began_with is None:
            return _in_python(spark, settings)
        remedy = f"add --conf spark.jars.packages={JAR}:{spark.version}"
        raise BadInputError(f"--checkpoint {checkpoint}: began with Spark's own Kafka source, whose jar is missing; {remedy}") from error


def source_of(checkpoint: AnyPath) -> str | None:
    """Return the source whose offsets a checkpoint has, `KAFKA` or `NAME`; None: it has none."""
    numbers: list[AnyPath] = [path for path in listed_below(checkpoint, "offsets").glob("*") if path.name.isdigit()]
    if not numbers:
        return None
    lines = max(numbers, key=lambda path: int(path.name)).read_text().splitlines()
    offsets = json.loads(lines[2]) if len(lines) > 2 and lines[2].startswith("{") else {}
    if not offsets:
        return None
    return KAFKA if any(isinstance(value, dict) for value in offsets.values()) else NAME


def _by_spark(spark: Any, settings: StreamSettings) -> Any:
    servers, topic = topic_of(settings.source)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true", "startingOffsets": "earliest"}
    reader = spark.readStream.format(KAFKA).options(**options).option("maxOffsetsPerTrigger", settings.messages_max)
    return reader.load().selectExpr(*_COLUMNS)


def _in_python(spark: Any, settings: StreamSettings) -> Any:
    servers, topic = topic_of(settings.source)
    spark.dataSource.register(TopicSource)
    properties = "" if settings.properties is None else str(settings.properties.resolve())
    options = {"servers": servers, "topic": topic, "properties": properties, "messages_max": str(settings.messages_max)}
    return spark.readStream.format(NAME).options(**options).load()
