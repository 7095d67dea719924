"""Reads a topic batch by batch with the source of `sluice meter stream`, in the order in which Spark calls it."""

from pipeline.spark.stream.topic_source import TopicReader


def read_all(reader: TopicReader) -> list[list[bytes]]:
    """Return the values of each batch, until the messages are read that were there at the beginning."""
    reader.prepareForTriggerAvailableNow()
    limit, at = reader.getDefaultReadLimit(), reader.initialOffset()
    batches = []
    while (end := reader.latestOffset(at, limit)) != at:
        batches.append([row[4] for span in reader.partitions(at, end) for row in reader.read(span)])
        at = end
    return batches
