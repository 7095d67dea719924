"""Replaces broker addresses in responses, driven by the layouts of `apis.json`.

One walker per API and version is compiled at import. It stops after the last address; all other bytes stay the same,
unknown tagged fields and trailing bytes too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from protocol.api_keys import API_VERSIONS, TABLE, ApiVersion
from protocol.errors import BadResponseError
from protocol.headers import response_header_len
from protocol.layout import (
    Field,
    Layout,
    Skip,
    layout_of,
    read_count,
    read_uvarint,
    reading,
    skip_compact,
    skip_fields,
    skip_string,
    skip_struct,
)
from protocol.layout_steps import SkipInSteps, fields_in_steps
from protocol.limits import LENGTH_BYTES
from protocol.patches import Patches
from protocol.primitives import INT32, Buffer, string, uvarint
from protocol.steps import Pace, Steps, finished

Resolve = Callable[[int, str, int], tuple[str, int] | None]
"""Maps (node id, host, port) of an entry to the host and port for clients, or to None: leave the entry unchanged."""

IDS_MAX = 10_000

_BROKERS = 1  # EndpointType of DescribeCluster, KIP-919


class Spliced(NamedTuple):
    """A response after splicing.

    Attributes:
        frame: the same object as the argument when nothing changed.
        node_ids: the first IDS_MAX node ids, in wire order, -1 ("no node") included.
        unmapped: those for which `resolve` returned None, so that the entry is unchanged, and "no node" entries.
        exposed: those of `unmapped` that have a host, also with a negative id: the frame still contains a broker's address.
        controllers: DescribeCluster for an endpoint type other than brokers; nothing was changed.
    """

    frame: bytes | memoryview
    node_ids: tuple[int, ...]
    unmapped: tuple[int, ...]
    exposed: tuple[int, ...]
    controllers: bool


class _Splicing:
    """The state of one walk over one frame."""

    __slots__ = ("exposed", "frame", "node_ids", "pace", "patches", "resolve", "unmapped")

    def __init__(self, frame: bytes | memoryview, resolve: Resolve) -> None:
        self.frame = frame
        self.pace = Pace()
        self.resolve = resolve
        self.patches = Patches(frame)
        self.node_ids: list[int] = []
        self.unmapped: list[int] = []
        self.exposed: list[int] = []

    def address(self, at: int, *, compact: bool) -> int:
        """Visit a node id, a host and a port from `at` on; return the offset after them."""
        frame = self.frame
        (node_id,) = INT32.unpack_from(frame, at)
        port_at = skip_compact(frame, at + 4) if compact else skip_string(frame, at + 4)
        (port,) = INT32.unpack_from(frame, port_at)
        host_at = read_uvarint(frame, at + 4)[1] if compact else at + 6
        host = str(frame[host_at:port_at], "utf-8", "replace")
        if len(self.node_ids) < IDS_MAX:
            self.node_ids.append(node_id)
        replacement = self.resolve(node_id, host, port) if host or node_id >= 0 else None
        if replacement is None:
            self._leave(node_id, host)
        elif replacement != (host, port):
            self.patches.add(at + 4, port_at + 4, string(replacement[0], compact=compact) + INT32.pack(replacement[1]))
        return port_at + 4

    def _leave(self, node_id: int, host: str) -> None:
        if len(self.unmapped) < IDS_MAX:
            self.unmapped.append(node_id)
        if host and len(self.exposed) < IDS_MAX:
            self.exposed.append(node_id)


_VisitEntry = Callable[[_Splicing, int], int]
_Visit = Callable[[_Splicing, int], Steps[int]]


def _visit_entry(fields: tuple[Field, ...], address: dict[str, Any], *, flexible: bool, whole: bool) -> _VisitEntry:
    """Compile the visit of a struct with one address; with `whole` it goes on to the end of the struct."""
    ordinary = [field for field in fields if field.tag is None]
    first = next(index for index, field in enumerate(ordinary) if field.name == address["id"])
    found = [(field.name, field.type) for field in ordinary[first : first + 3]]
    if found != [(address["id"], "int32"), (address["host"], "string"), (address["port"], "int32")]:
        raise ValueError(f"node id, host and port are not adjacent: {found}")
    prefix = skip_fields(ordinary[:first], flexible=flexible)
    suffix = skip_struct(ordinary[first + 3 :], flexible=flexible) if whole else None

    def visit(splicing: _Splicing, at: int) -> int:
        at = splicing.address(prefix(splicing.frame, at), compact=flexible)
        return at if suffix is None else suffix(splicing.frame, at)

    return visit


def _visit_array(entry: _VisitEntry, *, flexible: bool, is_tagged: bool) -> _Visit:
    """Compile the visit of all elements of an array. In a tagged field the size precedes them and is corrected after them."""

    def visit(splicing: _Splicing, at: int) -> Steps[int]:
        count, at = read_count(splicing.frame, at, compact=flexible)
        for _ in range(count):
            at = entry(splicing, at)
            if splicing.pace.due():
                if not is_tagged:
                    yield from splicing.patches.flush()
                yield
        return at

    return visit


def _visit_tagged(visit_value: _Visit, wanted: int) -> _Visit:
    """Compile the visit of a tag section: the size of the wanted field is corrected for the replacements inside it."""

    def visit(splicing: _Splicing, at: int) -> Steps[int]:
        frame = splicing.frame
        count, at = read_uvarint(frame, at)
        for _ in range(count):
            tag, size_at = read_uvarint(frame, at)
            size, value_at = read_uvarint(frame, size_at)
            at = value_at + size
            if tag == wanted:
                before = len(splicing.patches)
                if (yield from visit_value(splicing, value_at)) != at:
                    raise BadResponseError(f"tagged field {tag} is not {size} bytes long")
                growth = splicing.patches.growth_since(before)
                if growth:
                    splicing.patches.insert(before, size_at, value_at, uvarint(size + growth))
            if splicing.pace.due():
                yield
        return at

    return visit


def _visit_one(entry: _VisitEntry) -> _Visit:
    def visit(splicing: _Splicing, at: int) -> Steps[int]:
        return entry(splicing, at)
        yield

    return visit


def _after(prefix: SkipInSteps, visit_rest: _Visit) -> _Visit:
    def visit(splicing: _Splicing, at: int) -> Steps[int]:
        at = yield from prefix(splicing.frame, at, splicing.pace)
        return (yield from visit_rest(splicing, at))

    return visit


def _compile(layout: Layout, address: dict[str, Any]) -> _Visit:
    if address["path"] == "(top level)":
        return _visit_one(_visit_entry(layout.fields, address, flexible=layout.flexible, whole=False))
    name = address["path"].removesuffix("[]")
    field = layout.field(name)
    entry = _visit_entry(field.fields, address, flexible=layout.flexible, whole=True)
    array = _visit_array(entry, flexible=layout.flexible, is_tagged=field.tag is not None)
    visit = array if field.tag is None else _visit_tagged(array, field.tag)
    return _after(fields_in_steps(layout.before(name), flexible=layout.flexible), visit)


def _address_of(api: ApiVersion) -> dict[str, Any]:
    row = next(row for row in TABLE["apis"] if row["key"] == api.key)
    found: list[dict[str, Any]] = [
        address
        for address in row["addresses"]
        if address["in"] == "response"
        and address["treatment"] == "rewrite"
        and address["versions"][0] <= api.version <= address["versions"][1]
    ]
    if len(found) != 1:
        raise ValueError(f"{api.name} v{api.version} has {len(found)} places with addresses, one is supported")
    return found[0]


class _Splicer(NamedTuple):
    visit: _Visit
    endpoint_type_at: Skip | None  # leads to a byte that says whether the entries are brokers


def _splicer_of(api: ApiVersion) -> _Splicer:
    layout = layout_of(api.key, "response", api.version)
    has_type = layout.has("EndpointType")
    to_type = skip_fields(layout.before("EndpointType"), flexible=layout.flexible) if has_type else None
    return _Splicer(_compile(layout, _address_of(api)), to_type)


_SPLICERS = {api.index: _splicer_of(api) for api in API_VERSIONS.values() if api.splice}


def splice(api: ApiVersion, frame: bytes, resolve: Resolve) -> bytes | memoryview:
    """Return the whole response `frame`, length included, with its addresses replaced. See `splice_in_steps`."""
    return splice_report(api, frame, resolve).frame


def splice_report(api: ApiVersion, frame: bytes | memoryview, resolve: Resolve) -> Spliced:
    """Do what `splice_in_steps` does, in one call."""
    return finished(splice_in_steps(api, frame, resolve))


def splice_in_steps(api: ApiVersion, frame: bytes | memoryview, resolve: Resolve) -> Steps[Spliced]:
    """Replace host and port of every entry for which `resolve` returns an address, and correct lengths and sizes; in steps.

    The frame of an API or version without addresses is returned unchanged.

    Raises:
        BadResponseError: the frame does not match its API and version.
    """
    splicer = _SPLICERS.get(api.index)
    if splicer is None:
        return Spliced(frame, (), (), (), controllers=False)
    splicing = _Splicing(frame, resolve)
    with reading():
        body_at = LENGTH_BYTES + _header_len(api, frame)
        if splicer.endpoint_type_at is not None and frame[splicer.endpoint_type_at(frame, body_at)] != _BROKERS:
            return Spliced(frame, (), (), (), controllers=True)
        if (yield from splicer.visit(splicing, body_at)) > len(frame):
            raise BadResponseError("the addresses go past the end of the frame")
    written = yield from splicing.patches.written()
    return Spliced(written, tuple(splicing.node_ids), tuple(splicing.unmapped), tuple(splicing.exposed), controllers=False)


def _header_len(api: ApiVersion, frame: Buffer) -> int:
    header_len = response_header_len(api, frame, 0)
    if header_len is None:
        raise BadResponseError("the frame ends inside its header")
    return header_len
