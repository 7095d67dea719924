"""Responses that are changed: ApiVersions, addresses, and configurations that contain addresses."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, Protocol

from protocol.api_keys import MAX_VERSIONS, ApiKey, ApiVersion, keys_to_drop
from protocol.errors import BadResponseError, FrameSizeError, ProtocolError
from protocol.limits import LENGTH_BYTES, MAX_REWRITTEN_RESPONSE_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages import api_versions, describe_configs
from protocol.messages.addresses import splice_in_steps
from protocol.messages.fetch.tail import find_tail_in_steps
from protocol.messages.fetch.walker import FetchWalker
from protocol.messages.metadata import Topology, find_brokers_end, topology_in_steps
from protocol.messages.node_endpoints import blank_endpoints, tail_has_endpoints
from protocol.messages.produce import walk_produce_in_steps
from protocol.steps import Pace, Steps, finished
from proxy.session.parsed_response import ParsedResponse
from proxy.session.request_context import AS_IT_IS, BROKERS, ENDPOINTS, WALK, WHOLE

KNOWN_BROKERS_BYTES_MAX = 16 * 1024  # maximum size of a cached list of brokers: a hundred brokers have 5 KB
API_VERSIONS_KNOWN_MAX = 64  # by version and broker; few of each occur
EXPOSED_SHOWN = 8
TOPOLOGY_PARTITIONS_MAX = 10_000
"""Above this number the topology comes only from Sluice's own Metadata request, every five seconds."""
NO_OWN_APIS: Mapping[int, tuple[int, int]] = {}

ClientAddress = Callable[[int, str, int], "tuple[str, int] | None"]
"""Maps (node id, host, port) of a broker to the host and port for clients; None: it has none."""


class Rewriter:
    """Rewrites the responses of one connection.

    Args:
        client_address: None in a sidecar, where clients use the broker's addresses.
        on_topology: called with the content of a Metadata response; None: not needed.
        redact_configs: whether addresses are removed from DescribeConfigs responses.
        api_versions_cut: the ApiVersions responses for clients; shared by all connections.
        revision: returns a number that changes when `client_address` may return other values; None: its values are not cached.
    """

    __slots__ = ("_api_versions_cut", "_client_address", "_known_brokers", "_on_topology", "_redact_configs", "_revision")

    def __init__(
        self,
        client_address: ClientAddress | None,
        on_topology: Callable[[Topology], None] | None,
        api_versions_cut: ApiVersionsCut,
        *,
        redact_configs: bool,
        revision: Callable[[], int] | None = None,
    ) -> None:
        self._revision = revision
        self._known_brokers: dict[int, _KnownBrokers] = {}  # by API and version
        self._client_address = client_address
        self._on_topology = on_topology
        self._redact_configs = redact_configs
        self._api_versions_cut = api_versions_cut

    def broker_max(self, key: int) -> int:
        """Return the newest version of an API that the brokers certainly have, -1 when unknown."""
        return self._api_versions_cut.broker_max(key)

    def what_for(self, api: ApiVersion) -> int:
        """Return whether responses of `api` pass unchanged, are needed whole, or are followed while they pass."""
        if api.key == ApiKey.API_VERSIONS:
            return WHOLE
        if self._client_address is None:
            return WHOLE if api.key == ApiKey.METADATA and self._on_topology else AS_IT_IS
        if api.key == ApiKey.FETCH or api.key == ApiKey.SHARE_FETCH:
            return WALK if api.splice else AS_IT_IS
        if api.key == ApiKey.PRODUCE:
            return ENDPOINTS if api.splice else AS_IT_IS
        if api.key == ApiKey.METADATA and self._on_topology is None:
            return BROKERS if api.splice else AS_IT_IS
        return WHOLE if api.splice or (api.redact and self._redact_configs) else AS_IT_IS

    def rewrite(self, api: ApiVersion, frame: bytes) -> bytes | memoryview:
        """Do what `parse` does, in one call; return the whole response to send."""
        return finished(self.parse(api, frame)).frame

    def parse(self, api: ApiVersion, frame: bytes | memoryview) -> Steps[ParsedResponse]:
        """Parse a whole response in steps; the result's frame is `frame` itself when nothing had to change.

        Raises:
            ProtocolError: it does not match its version, or an address in it has no listener (`unmapped`).
        """
        key, is_ours = api.key, self._client_address is not None
        if key == ApiKey.PRODUCE:
            throttle_at, has_endpoints = yield from walk_produce_in_steps(api, frame)
            spliced = (yield from self._splice(api, frame)) if has_endpoints and is_ours else frame
            return ParsedResponse(spliced, throttle_at=throttle_at)
        if key == ApiKey.FETCH or key == ApiKey.SHARE_FETCH:
            tail_at = yield from find_tail_in_steps(api, frame)
            has_endpoints = tail_has_endpoints(api, frame[tail_at:])
            return ParsedResponse((yield from self._splice(api, frame)) if has_endpoints else frame)
        if key == ApiKey.API_VERSIONS:
            return ParsedResponse(self.cut(api, frame))
        if api.redact:
            return ParsedResponse((yield from describe_configs.redact_in_steps(api, frame)))
        if key == ApiKey.METADATA and self._on_topology is not None:
            topology = yield from topology_in_steps(api, frame)
            if len(topology.partitions) <= TOPOLOGY_PARTITIONS_MAX:
                self._on_topology(topology)
        return ParsedResponse((yield from self._splice(api, frame)) if is_ours and api.splice else frame)

    def cut(self, api: ApiVersion, frame: bytes | memoryview) -> bytes:
        """Return the response to ApiVersions, the first request of every connection, as it is sent."""
        return self._api_versions_cut.cut(api.version, bytes(frame))

    def walker(self, api: ApiVersion, frame_bytes: int) -> Walker:
        """Return the walker that follows one response while it passes."""
        assert self._client_address is not None
        if api.key == ApiKey.METADATA:
            return BrokersWalker(api, frame_bytes, lambda beginning: self._splice_brokers(api, beginning))
        return AnswerWalker(api, frame_bytes, self._client_address)

    def with_known_brokers(self, api: ApiVersion, piece: bytes | memoryview, frame_bytes: int) -> bytes | None:
        """Return the available part of a Metadata response as it is sent, when its brokers equal those of the response before; else None.

        The brokers come first and are the same for all clients, as long as the cluster does not change.
        """
        known = self._known_brokers.get(api.index)
        if known is None or self._revision is None:
            return None
        end = RESPONSE_HEAD_BYTES + len(known.before)
        if len(piece) < end or piece[RESPONSE_HEAD_BYTES:end] != known.before or known.revision != self._revision():
            return None
        size = frame_bytes - LENGTH_BYTES + len(known.after) - len(known.before)
        return b"".join((size.to_bytes(LENGTH_BYTES, "big"), piece[LENGTH_BYTES:RESPONSE_HEAD_BYTES], known.after, piece[end:]))

    def _splice_brokers(self, api: ApiVersion, beginning: bytes) -> bytes | memoryview:
        """Replace the addresses in a Metadata response up to the end of its brokers."""
        spliced = finished(self._splice(api, beginning))
        if self._revision is not None and len(beginning) <= KNOWN_BROKERS_BYTES_MAX:
            before, after = beginning[RESPONSE_HEAD_BYTES:], bytes(spliced[RESPONSE_HEAD_BYTES:])
            self._known_brokers[api.index] = _KnownBrokers(self._revision(), before, after)
        return spliced

    def _splice(self, api: ApiVersion, frame: bytes | memoryview) -> Steps[bytes | memoryview]:
        assert self._client_address is not None
        report = yield from splice_in_steps(api, frame, self._client_address)
        if report.controllers:
            raise ProtocolError("the response names controllers, which must not be sent to clients", reason="unmapped")
        if report.exposed:
            brokers = ", ".join(map(str, report.exposed[:EXPOSED_SHOWN]))
            raise ProtocolError(f"no listener for broker {brokers}: its address may not be sent to clients", reason="unmapped")
        return report.frame


class _KnownBrokers(NamedTuple):
    """The beginning of a Metadata response after its correlation id: as the broker sent it, and as it was sent to the client."""

    revision: int
    before: bytes
    after: bytes


class Walker(Protocol):
    """Follows a response that passes in pieces.

    Attributes:
        passes: whether the bytes still to arrive certainly need no change.
    """

    passes: bool

    @property
    def passing_bytes(self) -> int:
        """Number of the next bytes that pass without being parsed."""

    def pass_on(self, size: int) -> None:
        """Go on behind bytes, at most `passing_bytes`, that were sent."""

    @property
    def kept_bytes(self) -> int:
        """Number of bytes kept of the response."""

    def passes_at_once(self, data: bytes | memoryview) -> bool:
        """Follow the next bytes of the frame if they certainly pass unchanged, and that takes one step; False: nothing was done."""

    def feed(self, data: bytes | memoryview, pace: Pace) -> Steps[bytes | memoryview]:
        """Parse the next bytes of the frame, not beyond its end, in steps; return the bytes to send."""


class ApiVersionsCut:
    """ApiVersions responses, reduced to what Sluice can handle. A broker gives the same response to every client, so the result is cached.

    Args:
        unknown_apis_pass: whether keys that Sluice does not know stay.
        own: version ranges of the APIs that Sluice answers, whatever the broker has.
    """

    __slots__ = ("_broker_max", "_drop", "_known", "_own")

    def __init__(self, *, unknown_apis_pass: bool, own: Mapping[int, tuple[int, int]] = NO_OWN_APIS) -> None:
        self._own = own
        self._drop: Container[int] = keys_to_drop(unknown_apis_pass=unknown_apis_pass)
        self._known: dict[tuple[int, bytes], bytes] = {}
        self._broker_max: dict[int, int] = {}

    def broker_max(self, key: int) -> int:
        """Return the newest version of an API that every broker so far has, -1 when unknown."""
        return self._broker_max.get(key, -1)

    def cut(self, version: int, frame: bytes) -> bytes:
        """Return the response `frame` to a request of `version` as it is sent."""
        correlation_id, answer = frame[LENGTH_BYTES:RESPONSE_HEAD_BYTES], frame[RESPONSE_HEAD_BYTES:]
        cut = self._known.get((version, answer))
        if cut is None:
            whole = api_versions.repair(version, frame, MAX_VERSIONS[ApiKey.API_VERSIONS])
            for key, _, highest in api_versions.read_api_keys(version, whole):
                self._broker_max[key] = min(highest, self._broker_max.get(key, highest))
            whole = api_versions.intersect(version, whole, MAX_VERSIONS, self._drop, self._own)
            if len(self._known) >= API_VERSIONS_KNOWN_MAX:
                self._known.clear()
            cut = self._known[version, answer] = whole[RESPONSE_HEAD_BYTES:]
        return (len(cut) + len(correlation_id)).to_bytes(LENGTH_BYTES, "big") + correlation_id + cut


class AnswerWalker:
    """Sends everything before the tail of a response as it arrives, and the tail with its addresses replaced.

    The length of the frame has been sent already, so the tail keeps its length: see `blank_endpoints`.
    """

    __slots__ = ("_api", "_client_address", "_left", "_tail", "_walker", "passes")

    def __init__(self, api: ApiVersion, frame_bytes: int, client_address: ClientAddress) -> None:
        self._api = api
        self._left = frame_bytes
        self._client_address = client_address
        self._walker = FetchWalker(api, frame_bytes)
        self._tail = bytearray()
        self.passes = False

    @property
    def passing_bytes(self) -> int:
        """Number of the next bytes that pass without being parsed: records."""
        return self._walker.passing_bytes

    def pass_on(self, size: int) -> None:
        """Go on behind bytes, at most `passing_bytes`, that were sent."""
        self._left -= size
        self._walker.pass_on(size)

    @property
    def kept_bytes(self) -> int:
        """Number of bytes kept of the response."""
        return len(self._tail)

    def passes_at_once(self, data: bytes | memoryview) -> bool:
        """Follow the next bytes of a response with one partition; see `FetchWalker.pass_plain`."""
        if not self._walker.pass_plain(data):
            return False
        self._left -= len(data)
        return True

    def feed(self, data: bytes | memoryview, pace: Pace) -> Steps[bytes | memoryview]:
        """Parse the next bytes of the frame, not beyond its end, in steps; return the bytes to send."""
        self._left -= len(data)
        passes = (yield from self._walker.feed_in_steps(data, 0, len(data), pace)) if self._walker.tail_at < 0 else 0
        if passes == len(data) and self._left:
            return data
        self._tail += data[passes:]
        if self._left:
            return data[:passes]
        return bytes(data[:passes]) + blank_endpoints(self._api, bytes(self._tail), self._client_address)


class BrokersWalker:
    """Holds a Metadata response until its brokers, which come first, are complete and its length is known; topics are not kept.

    Args:
        splice: returns the beginning of the response, up to the end of its brokers, with the addresses for clients.
    """

    __slots__ = ("_api", "_beginning", "_frame_bytes", "_parse_at_bytes", "_splice", "passes")

    def __init__(self, api: ApiVersion, frame_bytes: int, splice: Callable[[bytes], bytes | memoryview]) -> None:
        self._api = api
        self._frame_bytes = frame_bytes
        self._splice = splice
        self._beginning = bytearray()
        self._parse_at_bytes = 0
        self.passes = False

    @property
    def passing_bytes(self) -> int:
        """All bytes are parsed until the rest certainly needs no change."""
        return 0

    def pass_on(self, size: int) -> None:
        """Nothing passes without being parsed."""

    @property
    def kept_bytes(self) -> int:
        """Number of bytes kept of the response."""
        return len(self._beginning)

    def passes_at_once(self, _data: bytes | memoryview) -> bool:
        """Return False: all bytes are kept until the brokers are complete."""
        return False

    def feed(self, data: bytes | memoryview, pace: Pace) -> Steps[bytes | memoryview]:
        """Take the next bytes of the frame; nothing is sent before all brokers have arrived.

        Raises:
            ProtocolError: it does not match its version, an address in it has no listener, or it has too many brokers.
        """
        return self._take(data)
        yield  # brokers are few: there is no pause

    def _take(self, data: bytes | memoryview) -> bytes | memoryview:
        self._beginning += data
        have = len(self._beginning)
        if have < self._parse_at_bytes:
            return b""
        brokers_end = find_brokers_end(self._api, self._beginning, self._frame_bytes)
        if brokers_end is None:
            if have >= self._frame_bytes:
                raise BadResponseError("the frame ends inside its brokers")
            if have > MAX_REWRITTEN_RESPONSE_BYTES:
                raise FrameSizeError(
                    f"brokers of {have} bytes have to be rewritten, limit {MAX_REWRITTEN_RESPONSE_BYTES}", reason="rewrite_limit"
                )
            self._parse_at_bytes = min(2 * have, self._frame_bytes)  # a list that arrives in many pieces is not parsed for each
            return b""
        beginning, self._beginning = self._beginning, bytearray()
        self.passes = True
        before = bytes(beginning[:brokers_end])
        spliced = self._splice(before)
        if spliced is before:
            return bytes(beginning)
        size = self._frame_bytes - LENGTH_BYTES + len(spliced) - brokers_end
        return b"".join((size.to_bytes(LENGTH_BYTES, "big"), spliced[LENGTH_BYTES:], memoryview(beginning)[brokers_end:]))
