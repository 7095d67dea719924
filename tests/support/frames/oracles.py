"""Two independent codecs, kio and kafka-python, to check Sluice's; they share neither code nor tables with it."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from kafka.protocol.api_message import ApiMessage
from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema
from kio.serial import entity_reader

Tree = Any
"""Dictionaries by field name, lists or tuples, and values."""


class OracleError(Exception):
    """The oracle does not accept these bytes."""


class Kio:
    """kio: generated from the definitions of Kafka 4.x; raises on unknown tagged fields."""

    name = "kio"

    def covers(self, key: int, version: int, *, response: bool = True) -> bool:
        """Return whether it has this version of the message."""
        return self._reader(key, version, response) is not None

    def decode(self, key: int, version: int, data: bytes, at: int, *, response: bool = True) -> Tree:
        """Return the message whose body begins at `at`."""
        reader = self._reader(key, version, response)
        assert reader is not None
        return _guarded(lambda: dataclasses.asdict(reader(data, at)[0]))

    @staticmethod
    @cache
    def _reader(key: int, version: int, response: bool) -> Any:
        try:
            schema = load_response_schema(key, version) if response else load_request_schema(key, version)
        except (UnknownAPIKey, UnknownEntity):
            return None
        return entity_reader(schema)


class KafkaPython:
    """kafka-python: interprets Kafka's definitions at run time; asserts on unknown tagged fields inside tagged structs."""

    name = "kafka-python"

    def covers(self, key: int, version: int, *, response: bool = True) -> bool:
        """Return whether it has this version of the message."""
        message = _kafka_python_messages().get((key, response))
        return message is not None and message.min_version <= version <= message.max_version

    def decode(self, key: int, version: int, data: bytes, at: int, *, response: bool = True) -> Tree:
        """Return the message whose body begins at `at`."""
        message = _kafka_python_messages()[key, response]
        return _guarded(lambda: message.decode(data[at:], version=version).to_dict(json=False))


ORACLES = (Kio(), KafkaPython())


@cache
def _kafka_python_messages() -> dict[tuple[int, bool], Any]:
    found: dict[tuple[int, bool], Any] = {}
    for package in (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer):
        for module in pkgutil.iter_modules(package.__path__):
            loaded = importlib.import_module(f"{package.__name__}.{module.name}")
            for _, message in inspect.getmembers(loaded, inspect.isclass):
                if issubclass(message, ApiMessage) and message is not ApiMessage:
                    found[message.API_KEY, not message.is_request()] = message
    return found


def _guarded(decode: Callable[[], Tree]) -> Tree:
    try:
        return decode()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # noqa: BLE001 - the native reader of kio may panic, which is no Exception
        raise OracleError(f"{type(problem).__name__}: {problem}") from None


def plain(tree: Any) -> Any:
    """Return the tree with lists in place of tuples."""
    if isinstance(tree, (list, tuple)):
        return [plain(item) for item in tree]
    return {name: plain(item) for name, item in tree.items()} if isinstance(tree, dict) else tree
