"""Clients of librdkafka with one client-id that always have more to send, or to fetch.

python -m bench.fleet.librdkafka_app KIND BOOTSTRAP TOPIC CLIENT_ID COUNT REQUEST_BYTES WITHIN_S          runs until it is killed

KIND is produce or fetch. REQUEST_BYTES is the largest batch, or the most bytes of a fetch. Clients begin at random times within WITHIN_S.
Fetchers begin again at the end of the topic.
"""

import random
import sys
import threading
import time
from typing import Any

from bench.clients.client_app import records

QUEUE_KIB = 400
POLL_S = 0.1


def produce(settings: dict[str, Any], topic: str, request_bytes: int) -> None:
    """Send records without end."""
    from confluent_kafka import Producer

    producer = Producer(settings | {"batch.size": request_bytes, "queue.buffering.max.kbytes": QUEUE_KIB})
    for record in records(settings["client.id"]):
        while True:
            try:
                producer.produce(topic, record)
                break
            except BufferError:
                producer.poll(POLL_S)


def fetch(settings: dict[str, Any], topic: str, request_bytes: int) -> None:
    """Fetch the topic again and again."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    sizes = {"fetch.message.max.bytes": request_bytes, "queued.max.messages.kbytes": QUEUE_KIB}
    group = {"group.id": settings["client.id"], "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(settings | sizes | group)
    consumer.assign([TopicPartition(topic, 0, 0)])
    while True:
        for message in consumer.consume(100, POLL_S):
            if (error := message.error()) is not None and error.code() == KafkaError._PARTITION_EOF:
                consumer.seek(TopicPartition(topic, 0, 0))


def main(kind: str, bootstrap: str, topic: str, client_id: str, count: str, request_bytes: str, within_s: str) -> None:
    """Run this number of clients."""
    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "log_level": 0}
    work = {"produce": produce, "fetch": fetch}[kind]

    def run() -> None:
        time.sleep(random.uniform(0.0, float(within_s)))
        work(settings, topic, int(request_bytes))

    threads = [threading.Thread(target=run) for _ in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
