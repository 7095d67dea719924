"""A broker's topics, for scripted brokers: answers requests to create, grow, delete and describe them. It has no quota."""

import math
import struct
from typing import Any

from protocol.api_keys import ApiKey
from protocol.layout import layout_of
from protocol.request_head import read_request_head
from tests.support.frames import layout_codec
from tests.support.frames.kafka_frames import api_versions_answer, message, response
from tests.support.frames.topic_change_layouts import change_layout, topics_field

UNKNOWN_TOPIC, TOPIC_EXISTS, INVALID_NAME, INVALID_PARTITIONS, DUPLICATE, QUOTA_EXCEEDED, UNKNOWN_ID = 3, 36, 17, 37, 42, 89, 100
STRICT_SINCE = {int(ApiKey.CREATE_TOPICS): 6, int(ApiKey.DELETE_TOPICS): 5, int(ApiKey.CREATE_PARTITIONS): 3}


class TopicModel:
    """Topics by name with their number of partitions.

    Attributes:
        asked: (key, version, names) of every request.
        default_partitions: the number of partitions for requests without one.
    """

    def __init__(self, default_partitions: int = 3, **topics: int) -> None:
        self.topics = dict(topics)
        self.default_partitions = default_partitions
        self.asked: list[tuple[int, int, list[str | None] | None]] = []
        self.metadata_shows: dict[str, int] | None = None
        """Outdated numbers of partitions for Metadata answers, as from a lagging broker."""

    @staticmethod
    def id_of(name: str) -> bytes:
        """Return the id of a topic."""
        return name.encode().ljust(16, b"\1")[:16]

    def answer(self, frame: bytes) -> bytes:
        """Handle a request and return its answer."""
        head = read_request_head(frame, 0, len(frame) - 4)
        assert head is not None
        api = head.api
        if api.key == ApiKey.API_VERSIONS:
            self.asked.append((api.key, api.version, None))
            ranges = [
                (ApiKey.METADATA, 0, 13),
                (ApiKey.CREATE_TOPICS, 0, 7),
                (ApiKey.DELETE_TOPICS, 0, 6),
                (ApiKey.CREATE_PARTITIONS, 0, 3),
            ]
            return api_versions_answer(head.correlation_id, [(int(key), low, high) for key, low, high in ranges], api.version)
        body, _ = layout_codec.decode(change_layout(api, "request"), frame, head.body_at)
        entries = body.get("TopicNames", body.get("Topics"))
        entries = [{"Name": entry} if isinstance(entry, str) else entry for entry in entries or []] if entries is not None else None
        self.asked.append((api.key, api.version, None if entries is None else [entry["Name"] for entry in entries]))
        answers = {
            int(ApiKey.METADATA): self._describe,
            int(ApiKey.CREATE_TOPICS): self._create,
            int(ApiKey.DELETE_TOPICS): self._delete,
            int(ApiKey.CREATE_PARTITIONS): self._grow,
        }
        self._begin(strict=api.version >= STRICT_SINCE.get(api.key, 0))
        values = answers[api.key](entries, body)
        written = layout_of(api.key, "response", api.version) if api.key == ApiKey.METADATA else change_layout(api, "response")
        field = "Topics" if api.key == ApiKey.METADATA else topics_field(api, "response")
        return response(api, message(written, ThrottleTimeMs=self._throttle_ms(), **{field: values}), head.correlation_id)

    def _begin(self, *, strict: bool) -> None:
        """Begin a request."""

    def _charge(self, _permits: int) -> bool:
        """Return whether this many partitions may be created or deleted."""
        return True

    def _throttle_ms(self) -> int:
        """Return how long the client of this request has to wait."""
        return 0

    def _describe(self, entries: list[dict[str, Any]] | None, _body: dict[str, Any]) -> list[dict[str, Any]]:
        shown = self.topics if self.metadata_shows is None else self.metadata_shows
        wanted = list(shown) if entries is None else [self._named(entry, shown) for entry in entries]
        topics = []
        for name in wanted:
            count = shown.get(name or "", 0)
            partitions = [{"PartitionIndex": index, "LeaderId": 1} for index in range(count)]
            topic_id = self.id_of(name) if name is not None and count else bytes(16)
            topics.append({"Name": name, "TopicId": topic_id, "ErrorCode": 0 if count else UNKNOWN_TOPIC, "Partitions": partitions})
        return topics

    def _create(self, entries: list[dict[str, Any]] | None, body: dict[str, Any]) -> list[dict[str, Any]]:
        results = []
        for entry in entries or []:
            name, count = entry["Name"], entry["NumPartitions"]
            count = len(entry["Assignments"]) or (self.default_partitions if count == -1 else count)
            error = INVALID_NAME if not name else TOPIC_EXISTS if name in self.topics else INVALID_PARTITIONS if count <= 0 else 0
            if _is_twice(entry, entries):
                error = DUPLICATE
            if not error and not self._charge(count):
                error = QUOTA_EXCEEDED
            if not error and not body.get("ValidateOnly"):
                self.topics[name] = count
            made = {"NumPartitions": -1 if error else count, "TopicId": bytes(16) if error else self.id_of(name)}
            results.append({"Name": name, "ErrorCode": error, "ErrorMessage": None, "Configs": [], **made})
        return results

    def _delete(self, entries: list[dict[str, Any]] | None, _body: dict[str, Any]) -> list[dict[str, Any]]:
        results = []
        for entry in entries or []:
            name = self._named(entry, self.topics)
            found = name is not None and name in self.topics
            error = 0 if found else UNKNOWN_TOPIC if entry["Name"] is not None else UNKNOWN_ID
            if _is_twice(entry, entries):
                error = DUPLICATE
            if not error and not self._charge(self.topics[name or ""]):
                error = QUOTA_EXCEEDED
            topic_id = self.id_of(name) if name is not None and found else entry.get("TopicId", bytes(16))
            if not error:
                del self.topics[name or ""]
            results.append({"Name": name, "TopicId": topic_id, "ErrorCode": error, "ErrorMessage": None})
        return results

    def _grow(self, entries: list[dict[str, Any]] | None, body: dict[str, Any]) -> list[dict[str, Any]]:
        results = []
        for entry in entries or []:
            now = self.topics.get(entry["Name"], 0)
            error = UNKNOWN_TOPIC if not now else INVALID_PARTITIONS if entry["Count"] <= now else 0
            if _is_twice(entry, entries):
                error = DUPLICATE
            if not error and not self._charge(entry["Count"] - now):
                error = QUOTA_EXCEEDED
            if not error and not body.get("ValidateOnly"):
                self.topics[entry["Name"]] = entry["Count"]
            results.append({"Name": entry["Name"], "ErrorCode": error, "ErrorMessage": None})
        return results

    def _named(self, entry: dict[str, Any], topics: dict[str, int]) -> str | None:
        if entry["Name"] is not None:
            return str(entry["Name"])
        return next((name for name in topics if self.id_of(name) == entry["TopicId"]), None)


class QuotaTopicModel(TopicModel):
    """Topics with a quota, as in KRaft's controller: a plain bucket, checked or charged topic by topic."""

    def __init__(self, rate: float, burst: float, default_partitions: int = 3) -> None:
        super().__init__(default_partitions)
        self.now_ms = 0
        self.tokens = burst
        self._rate, self._burst = rate, burst
        self._filled_ms = 0
        self._strict = False
        self._wait_ms = 0

    def refill(self) -> None:
        """Add the tokens of the time since the last call."""
        self.tokens = min(self._burst, self.tokens + self._rate * ((self.now_ms - self._filled_ms) / 1_000))
        self._filled_ms = self.now_ms

    def _begin(self, *, strict: bool) -> None:
        self._strict, self._wait_ms = strict, 0
        self.refill()

    def _charge(self, permits: int) -> bool:
        if self._strict and self.tokens < 0:
            self._wait_ms = math.floor(-self.tokens / self._rate * 1_000 + 0.5)
            return False
        self.tokens -= permits
        if not self._strict and self.tokens < 0:
            self._wait_ms = math.floor(-self.tokens / self._rate * 1_000 + 0.5)
        return True

    def _throttle_ms(self) -> int:
        return self._wait_ms


def _is_twice(entry: dict[str, Any], entries: list[dict[str, Any]] | None) -> bool:
    same = [other for other in entries or [] if (other["Name"], other.get("TopicId")) == (entry["Name"], entry.get("TopicId"))]
    return len(same) > 1


def split(data: bytes) -> list[bytes]:
    """Split bytes into frames."""
    frames = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        frames.append(data[: 4 + size])
        data = data[4 + size :]
    return frames
