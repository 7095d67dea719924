"""An application that always has more to send, with one of the Python clients.

python -m bench.clients.client_app LIBRARY BOOTSTRAP TOPIC CLIENT_ID          runs until it is killed

LIBRARY is confluent, confluent-16kB (with batches of 16 kB), confluent-idempotent, aiokafka or kafka-python. Records are 1,000 bytes that
begin with "CLIENT_ID:counter:".
"""

import asyncio
import itertools
import sys
from collections.abc import Iterator

RECORD_BYTES = 1_000
QUEUED_RECORDS = 4_000
"""Queue of librdkafka, which sends all queued records and gives up after 60 s: 40 s of a quota of 100 kB/s. With 50 s a broker, which
handles one request at a time, answers the last of five requests of 1 MB after 60 s, and so does Sluice."""

CONFLUENT: dict[str, dict[str, object]] = {
    "confluent": {},
    "confluent-16kB": {"batch.size": 16_384},
    "confluent-idempotent": {"enable.idempotence": True},
}


def records(client_id: str) -> Iterator[bytes]:
    """Yield records without end, all different."""
    for counter in itertools.count():
        yield f"{client_id}:{counter}:".encode().ljust(RECORD_BYTES, b".")


def run_confluent(bootstrap: str, topic: str, client_id: str, **more: object) -> None:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "queue.buffering.max.messages": QUEUED_RECORDS}
    producer = Producer(settings | more)
    for record in records(client_id):
        while True:
            try:
                producer.produce(topic, record)
                break
            except BufferError:
                producer.poll(0.1)


def run_kafka_python(bootstrap: str, topic: str, client_id: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id)
    for record in records(client_id):
        try:
            producer.send(topic, record)
        except KafkaError as error:
            print(error, flush=True)


async def run_aiokafka(bootstrap: str, topic: str, client_id: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async with AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=client_id) as producer:
        for record in records(client_id):
            try:
                await producer.send(topic, record)
            except KafkaError as error:
                print(error, flush=True)


def main(library: str, bootstrap: str, topic: str, client_id: str) -> None:
    """Run one of the libraries."""
    if library == "aiokafka":
        asyncio.run(run_aiokafka(bootstrap, topic, client_id))
    elif library == "kafka-python":
        run_kafka_python(bootstrap, topic, client_id)
    else:
        run_confluent(bootstrap, topic, client_id, **CONFLUENT[library])


if __name__ == "__main__":
    main(*sys.argv[1:])
