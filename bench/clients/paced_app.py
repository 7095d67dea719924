"""A librdkafka producer that sends at a given rate, whatever the quota lets pass.

python -m bench.clients.paced_app BOOTSTRAP TOPIC CLIENT_ID RECORDS_PER_SECOND [KEY=VALUE]...          runs until it is killed

Records that do not fit into its queue are dropped: the application does not wait, and the next records are sent on time.
"""

import sys
import time

from bench.clients.client_app import records

TURN_S = 0.02


def main(bootstrap: str, topic: str, client_id: str, records_per_second: str, *settings: str) -> None:
    """Produce without end."""
    from confluent_kafka import Producer

    base = {"bootstrap.servers": bootstrap, "client.id": client_id, "queue.buffering.max.messages": 5_000}
    producer = Producer(base | dict(setting.split("=", 1) for setting in settings))
    rate, wanted, start = float(records_per_second), 0, time.monotonic()
    source = records(client_id)
    while True:
        due = int((time.monotonic() - start) * rate)
        for _ in range(wanted, due):
            try:
                producer.produce(topic, next(source))
            except BufferError:
                break
        wanted = due
        producer.poll(TURN_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
