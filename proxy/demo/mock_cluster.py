"""A Kafka cluster inside this process: the mock of librdkafka in the confluent-kafka wheel, called through ctypes.

It stores and serves records, supports groups and transactions, and injects faults. It has no quotas, no SASL and no TLS. It keeps 5 MiB
per partition and drops older records, so a slow consumer needs many partitions. librdkafka declares the C functions experimental, so the
wheel's version is pinned; a missing function is reported by name.
"""

import ctypes
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from proxy.base.packages import REQUIREMENTS, need, remedy

ALL_BROKERS = -1
PARTITIONS_DEFAULT = 16
PARTITIONS_MAX = 100_000
BROKERS_MAX = 64
REBALANCE_DELAY_MS = 200
"""Initial rebalance delay. With the mock's default of 3,000 ms every first member waits; below 100 ms some clients get no assignment."""

DISCONNECT = -195
"""Injected error code that drops the connection instead of a response (librdkafka's _TRANSPORT)."""

_PRODUCER = 0
_ERROR_TEXT_BYTES = 512
_VERSION_CAPS = {8: 7, 9: 5, 10: 2, 11: 5, 12: 3, 13: 3, 14: 3}
"""API key -> highest version offered. The mock misreads JoinGroup 6; the other group APIs are limited to the same generation."""

_INT32 = ctypes.c_int32
_INT = ctypes.c_int
_TEXT = ctypes.c_char_p
_HANDLE = ctypes.c_void_p


class MockClusterError(Exception):
    """The mock is not available, or refused a call."""


class MockCluster:
    """Brokers 1 to n on ephemeral loopback ports. They run from construction to `close`; a context manager.

    Args:
        brokers: number of brokers, 1 to 64.
        api_versions: further limits, API key -> highest version offered; -1: the API is not offered.

    Raises:
        MockClusterError: confluent-kafka is not installed, or its library lacks a function.
    """

    def __init__(self, brokers: int = 3, *, api_versions: dict[int, int] | None = None) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise MockClusterError(f"a mock cluster has 1 to {BROKERS_MAX} brokers, not {brokers}")
        self._library = _Library()
        self._client = self._library.new_client()
        self._cluster = self._library.function("rd_kafka_mock_cluster_new", _HANDLE, _HANDLE, _INT)(self._client, brokers)
        if not self._cluster:
            raise MockClusterError("librdkafka could not start its mock cluster")
        self.node_ids = tuple(range(1, brokers + 1))
        self._call("rd_kafka_mock_set_controller_id", _INT32(1))
        self._call("rd_kafka_mock_group_initial_rebalance_delay_ms", _INT32(REBALANCE_DELAY_MS), result=None)
        for key, version_max in (_VERSION_CAPS | (api_versions or {})).items():
            self.set_api_version(key, version_max)

    @property
    def bootstrap(self) -> str:
        """Return the brokers' addresses as host:port, joined by commas."""
        function = self._library.function("rd_kafka_mock_cluster_bootstraps", _TEXT, _HANDLE)
        text: bytes = function(self._cluster)
        return text.decode()

    def create_topic(self, name: str, partitions: int = PARTITIONS_DEFAULT, replicas: int = 1) -> None:
        """Create a topic; the brokers lead its partitions in turn."""
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise MockClusterError(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}")
        self._call("rd_kafka_mock_topic_create", _TEXT(name.encode()), _INT(partitions), _INT(replicas))

    def set_api_version(self, key: int, version_max: int) -> None:
        """Offer API `key` from version 0 to `version_max`; -1: the API is not offered."""
        version_min = min(version_max, 0)
        self._call("rd_kafka_mock_set_apiversion", ctypes.c_int16(key), ctypes.c_int16(version_min), ctypes.c_int16(version_max))

    def set_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Move a partition to a broker."""
        self._call("rd_kafka_mock_partition_set_leader", _TEXT(topic.encode()), _INT32(partition), _INT32(node_id))

    def set_down(self, node_id: int = ALL_BROKERS) -> None:
        """Drop a broker's connections and accept no new ones. Leaders do not change."""
        self._call("rd_kafka_mock_broker_set_down", _INT32(node_id))

    def set_up(self, node_id: int = ALL_BROKERS) -> None:
        """Accept connections again."""
        self._call("rd_kafka_mock_broker_set_up", _INT32(node_id))

    def set_rtt(self, milliseconds: int, node_id: int = ALL_BROKERS) -> None:
        """Delay every response by a round-trip time."""
        self._call("rd_kafka_mock_broker_set_rtt", _INT32(node_id), _INT(milliseconds))

    def push_request_errors(self, key: int, codes: Iterable[int]) -> None:
        """Let the next requests of API `key` fail, one with each error code; `DISCONNECT` drops the connection."""
        values = tuple(codes)
        array = (_INT * len(values))(*values)
        self._call("rd_kafka_mock_push_request_errors_array", ctypes.c_int16(key), ctypes.c_size_t(len(values)), array, result=None)

    def close(self) -> None:
        """End the brokers; idempotent."""
        if self._cluster:
            cluster, self._cluster = self._cluster, None
            self._library.function("rd_kafka_mock_cluster_destroy", None, _HANDLE)(cluster)
            self._library.function("rd_kafka_destroy", None, _HANDLE)(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _call(self, name: str, *arguments: object, result: type[ctypes.c_int] | None = _INT) -> None:
        """Call a C function on the cluster; most functions return an error code, the others `None`."""
        function = self._library.function(name, result, _HANDLE, *(type(argument) for argument in arguments))
        code = function(self._cluster, *arguments)
        if code:
            raise MockClusterError(f"{name} refused its arguments with error {code}")


class _Library:
    """The shared library inside the wheel."""

    def __init__(self) -> None:
        # The import of the package loads the library's dependencies, which have other names in the wheel. Then ctypes can open the file.
        package = importlib.util.find_spec("confluent_kafka")
        if package is None or package.origin is None:
            lacking = [REQUIREMENTS["confluent_kafka"]]
            raise MockClusterError(f"the mock cluster {need(lacking)}; {remedy(lacking)}")
        __import__("confluent_kafka")
        folder = Path(package.origin).parent.with_name("confluent_kafka.libs")
        found = sorted(folder.glob("librdkafka-*.so*"))
        if not found:
            raise MockClusterError(f"no librdkafka in {folder.name} of the confluent-kafka package")
        self._library = ctypes.CDLL(str(found[0]))

    def function(self, name: str, result: object, *arguments: object) -> "ctypes._NamedFuncPointer":
        """Return a C function with argument and result types."""
        try:
            function = self._library[name]
        except AttributeError as error:
            raise MockClusterError(f"the librdkafka of this confluent-kafka has no {name}") from error
        function.restype = result  # type: ignore[assignment]
        function.argtypes = arguments  # type: ignore[assignment]
        return function

    def new_client(self) -> int:
        """Return the client handle that a mock cluster needs for its threads; it connects to no broker."""
        configuration = self.function("rd_kafka_conf_new", _HANDLE)()
        error = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        set_value = self.function("rd_kafka_conf_set", _INT, _HANDLE, _TEXT, _TEXT, _TEXT, ctypes.c_size_t)
        set_value(configuration, b"log_level", b"0", error, _ERROR_TEXT_BYTES)
        new = self.function("rd_kafka_new", _HANDLE, _INT, _HANDLE, _TEXT, ctypes.c_size_t)
        client: int | None = new(_PRODUCER, configuration, error, _ERROR_TEXT_BYTES)
        if not client:
            raise MockClusterError(f"librdkafka could not start: {error.value.decode(errors='replace')}")
        return client
