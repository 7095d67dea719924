"""Makes the archives of classes of all Kafka versions: each broker and tool of the tests starts with one."""

from contextlib import ExitStack, suppress

from tests.support.class_archive import finish
from tests.support.kafka.broker import BrokerFailedError, KafkaCluster
from tests.support.kafka.jars import VERSIONS, class_archive_of
from tests.support.kafka.java_process import Jvm

STOP_S = 120


def archive_classes() -> None:
    """Make each archive unless it exists: a broker loads the classes. A broker that does not start archives nothing."""
    with ExitStack() as stack:
        clusters = {}
        for version in VERSIONS:
            if not class_archive_of(version).exists():
                cluster = clusters[version] = KafkaCluster(version, name=f"archived-{version}", jvm=Jvm(archives=True))
                stack.callback(cluster.close)
                cluster.launch()
        for version, cluster in clusters.items():
            with suppress(BrokerFailedError):
                cluster.wait_until_serving()
                for node in cluster.nodes.values():
                    node.process.stop(STOP_S)
                finish(class_archive_of(version))
