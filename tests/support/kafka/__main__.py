"""`python -m tests.support.kafka [VERSION]`: a real broker in the foreground until Ctrl-C. VERSION: 4.3.1 (KRaft) or 3.9.1 (ZooKeeper)."""

import signal
import sys
import threading

from tests.support.kafka.broker import BrokerFailedError, KafkaCluster
from tests.support.kafka.jars import KRAFT, VERSIONS, KafkaUnavailableError
from tests.support.kafka.settings import SASL_USERS


def main(arguments: list[str]) -> int:
    """Run one broker. Return 0 when a signal ended it, 2 when it is not available here."""
    version = arguments[0] if arguments else KRAFT
    if version not in VERSIONS:
        print(f"unknown version {version!r}: {' or '.join(VERSIONS)}", file=sys.stderr)
        return 2
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with KafkaCluster(version, name=f"foreground-{version}") as cluster:
            _explain(cluster)
            ended.wait()
    except (KafkaUnavailableError, BrokerFailedError) as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


def _explain(cluster: KafkaCluster) -> None:
    print(f"Apache Kafka {cluster.version} at {cluster.bootstrap}")
    print(f"  with SASL/PLAIN at {cluster.sasl_bootstrap}, users {', '.join(SASL_USERS)}, password NAME-secret")
    print(f"  in front of it:  sluice run --listen 127.0.0.1:9092 --upstream {cluster.bootstrap}")
    print("  Ctrl-C ends it and removes its data", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
