"""ZooKeeper's quota nodes: how they are read, and the operations that change them."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.quota_store.store import StoreUnavailable, SwitchChange
from proxy.quota_store.zookeeper.client import Create, Delete, Write
from proxy.quota_store.zookeeper.reads import Node
from proxy.quota_store.zookeeper.znode_codec import (
    BadNode,
    java_order,
    read_change,
    read_config,
    read_switches,
    read_values,
    write_config,
    write_switches,
)
from proxy.quota_store.zookeeper.znode_operations import steps_of
from proxy.quota_store.zookeeper.znode_tree import ZnodeTree
from quota.admin.kraft import Change
from quota.admin.messages import EntityKey, entity_key

PRODUCE, FETCH, PERCENT = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
ALICE, ETL = entity_key([("user", "alice")]), entity_key([("user", "alice"), ("client-id", "etl")])
WEB = entity_key([("user", "alice"), ("client-id", "web")])
SALT = "salt=abc,stored_key=def"


def node(version: int = 3, children: int = 0, **config: str) -> Node:
    return Node(json.dumps({"version": 1, "config": config}).encode() if config else b"", version, children)


def tree(**nodes: Node) -> ZnodeTree:
    """Return a tree of nodes; `__` in a name stands for a slash."""
    made = ZnodeTree()
    for path, one in nodes.items():
        made.put(path.replace("__", "/"), one)
    return made


def wire(steps: list[object]) -> list[object]:
    """Return operations as tuples, and notifications with the path that they name."""
    done: list[object] = []
    for step in steps:
        for operation in step.operations:  # type: ignore[attr-defined]
            match operation:
                case Create(_, data, _, True):
                    done.append(("tell", json.loads(data)["entity_path"]))
                case Create(path, data, _, _):
                    done.append(("create", path, data.decode()))
                case Write(path, data, version):
                    done.append(("write", path, data.decode(), version))
                case Delete(path, version):
                    done.append(("delete", path, version))
    return done


def test_a_java_hash_table_orders_keys() -> None:
    """Keys are ordered as in a Java hash table, as brokers 3.9.1 write them."""
    expected = ["SCRAM-SHA-256", PERCENT, PRODUCE, "controller_mutation_rate", "SCRAM-SHA-512", FETCH]
    assert sorted(java_order(expected)) == sorted(expected)
    assert java_order([FETCH, PRODUCE, PERCENT]) == java_order([PERCENT, FETCH, PRODUCE])


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'"x"', b"{}", b'{"version":1}', b'{"config":[]}', b'{"config":{"producer_byte_rate":1}}', b"\xff", b"[" * 100_000],
)
def test_b4_a_node_that_is_none_is_said_to_be(data: bytes) -> None:
    """An invalid node is refused."""
    with pytest.raises(BadNode):
        read_config(data)


@pytest.mark.parametrize("text", ["", "x", "1.5", "NaN", "Infinity", "1e3", "0x10", "9223372036854775808", " 1", "1_0", "٣"])
def test_b4_a_rate_that_is_no_long_is_wrong(text: str) -> None:
    """A rate that `Long.parseLong` refuses is invalid, and the node's other values apply."""
    values, wrong = read_values({PRODUCE: text, FETCH: "7"}, ALICE)
    assert (values, set(wrong)) == ({FETCH: 7.0}, {PRODUCE})


@pytest.mark.parametrize(
    ("text", "value"),
    [("12.34", 12.34), ("1.0E-7", 1e-7), ("0", 0.0), ("-0.5", -0.5), ("Infinity", float("inf")), ("5d", 5.0), (".5", 0.5)],
)
def test_doubles_are_read_as_java_writes_them(text: str, value: float) -> None:
    """Doubles are read in Java's notation."""
    assert read_values({PERCENT: text}, ALICE).values == {PERCENT: value}


@pytest.mark.parametrize("text", ["NaN", "1e999", "-1e999", "x", "", "1.5.5", "--1", "1,5"])
def test_b4_a_double_that_is_none_is_wrong(text: str) -> None:
    """NaN, text and doubles out of range are refused."""
    assert read_values({PERCENT: text}, ALICE).values == {}


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.floats() | st.text(max_size=5), lambda inner: st.dictionaries(st.sampled_from(["config", "version", PRODUCE]), inner)
    ).map(lambda value: json.dumps(value).encode())
)
def test_b4_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Any bytes of a node, a notification or switches are read or refused."""
    for read in (lambda: read_values(read_config(data), ALICE), lambda: read_switches(data)):
        with contextlib.suppress(BadNode):
            read()
    read_change(data)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ('{"version":2,"entity_path":"users/alice/clients/e%20tl"}', "users/alice/clients/e%20tl"),
        ('{"version":1,"entity_type":"clients","entity_name":"c"}', "clients/c"),
        ('{"version":1,"entity_type":"topics","entity_name":"t"}', None),
        ('{"version":2,"entity_path":"topics/t"}', None),
        ('{"version":2,"entity_path":"users/../clients/x"}', None),
        ('{"version":2,"entity_path":"users/a/clients"}', None),
        ('{"version":2,"entity_path":7}', None),
        ("not json", None),
    ],
)
def test_notifications_of_both_versions_are_read(data: str, path: str | None) -> None:
    """Notifications of quotas are read in both versions, and others are ignored."""
    assert read_change(data.encode()) == path


def test_what_cannot_be_read_keeps_what_was_good() -> None:
    """A node or value that cannot be read keeps its last valid values, also after a reconnect."""
    made = tree(users__alice=node(producer_byte_rate="10", request_percentage="5.0"), users__bob=node(producer_byte_rate="7"))
    made.put("users/alice", Node(b'{"version":1,"conf', 4, 0))
    bob = entity_key([("user", "bob")])
    assert made.content().quotas == {ALICE: {PRODUCE: 10.0, PERCENT: 5.0}, bob: {PRODUCE: 7.0}}
    assert (made.rejected, made.problem) == (1, "users/alice is not JSON")
    made.put("users/alice", node(producer_byte_rate="many", request_percentage="6.0"))
    assert made.content().quotas[ALICE] == {PRODUCE: 10.0, PERCENT: 6.0}
    again = ZnodeTree(made)
    again.put("users/alice", Node(b"rubbish", 5, 0))
    again.keep_only(["users/alice"])
    assert again.content().quotas == {ALICE: {PRODUCE: 10.0, PERCENT: 6.0}}
    again.put("users/alice", None)
    assert (again.content().quotas, again.rejected) == ({}, 0)


def test_b8_credentials_are_written_back_as_they_were() -> None:
    """A change of a quota keeps the node's credentials."""
    made = tree(users__alice=node(**{PRODUCE: "10", "SCRAM-SHA-256": SALT}))
    assert wire(list(steps_of([Change(ALICE, PERCENT, 12.5)], made))) == [
        (
            "write",
            "/config/users/alice",
            '{"version":1,"config":{"SCRAM-SHA-256":"SALT","request_percentage":"12.5","producer_byte_rate":"10"}}'.replace("SALT", SALT),
            3,
        ),
        ("tell", "users/alice"),
    ]
    assert wire(list(steps_of([Change(ALICE, PRODUCE, None)], made))) == [
        ("write", "/config/users/alice", '{"version":1,"config":{"SCRAM-SHA-256":"SALT"}}'.replace("SALT", SALT), 3),
        ("tell", "users/alice"),
    ]


def test_nodes_above_are_made_once() -> None:
    """Missing parent nodes are created once."""
    assert wire(list(steps_of([Change(ETL, PRODUCE, 1.0), Change(WEB, PRODUCE, 2.0), Change(ALICE, FETCH, 3.0)], ZnodeTree()))) == [
        ("create", "/config/users/alice", ""),
        ("create", "/config/users/alice/clients", ""),
        ("create", "/config/users/alice/clients/etl", '{"version":1,"config":{"producer_byte_rate":"1"}}'),
        ("tell", "users/alice/clients/etl"),
        ("create", "/config/users/alice/clients/web", '{"version":1,"config":{"producer_byte_rate":"2"}}'),
        ("tell", "users/alice/clients/web"),
        ("write", "/config/users/alice", '{"version":1,"config":{"consumer_byte_rate":"3"}}', 0),
        ("tell", "users/alice"),
    ]


def test_emptied_nodes_go_and_what_is_empty_above_them() -> None:
    """A node without values is deleted with its empty parents, and one with children or values stays."""
    both = tree(
        users__alice=node(1, 1),
        users__alice__clients__etl=node(producer_byte_rate="1"),
        users__alice__clients__web=node(producer_byte_rate="2"),
    )
    assert wire(list(steps_of([Change(ETL, PRODUCE, None)], both))) == [
        ("delete", "/config/users/alice/clients/etl", 3),
        ("tell", "users/alice/clients/etl"),
    ]
    assert wire(list(steps_of([Change(ETL, PRODUCE, None), Change(WEB, PRODUCE, None)], both))) == [
        ("delete", "/config/users/alice/clients/etl", 3),
        ("tell", "users/alice/clients/etl"),
        ("delete", "/config/users/alice/clients/web", 3),
        ("delete", "/config/users/alice/clients", -1),
        ("delete", "/config/users/alice", 1),
        ("tell", "users/alice/clients/web"),
    ]
    with_texts = tree(users__alice=node(1, 1, producer_byte_rate="5"), users__alice__clients__etl=node(producer_byte_rate="1"))
    assert wire(list(steps_of([Change(ETL, PRODUCE, None)], with_texts)))[-2:] == [
        ("delete", "/config/users/alice/clients", -1),
        ("tell", "users/alice/clients/etl"),
    ]
    assert wire(list(steps_of([Change(ALICE, PRODUCE, None)], with_texts))) == [
        ("write", "/config/users/alice", '{"version":1,"config":{}}', 1),
        ("tell", "users/alice"),
    ]
    assert wire(list(steps_of([Change(ALICE, PRODUCE, None), Change(ETL, PRODUCE, None)], with_texts))) == [
        ("delete", "/config/users/alice/clients/etl", 3),
        ("delete", "/config/users/alice/clients", -1),
        ("delete", "/config/users/alice", 1),
        ("tell", "users/alice/clients/etl"),
        ("tell", "users/alice"),
    ]


def test_what_must_not_be_overwritten_is_not() -> None:
    """A node that cannot be read is not overwritten, and an invalid node name is refused."""
    broken = tree(users__alice=node(producer_byte_rate="1"))
    broken.put("users/alice", Node(b"{", 4, 0))
    with pytest.raises(StoreUnavailable, match="/config/users/alice: is not JSON; repair or delete the node first, nothing was changed"):
        steps_of([Change(ALICE, PRODUCE, 2.0)], broken)
    with pytest.raises(StoreUnavailable, match="cannot be a node of ZooKeeper"):
        steps_of([Change(entity_key([("client-id", "..")]), PRODUCE, 2.0)], ZnodeTree())


def test_pacings_stand_in_the_node_of_the_switches() -> None:
    """Pacings are in the node of the switches, and a node without them, as an older Sluice writes it, is read."""
    data = write_switches({"switches": {"all": "observe"}, "pacing": {"group:a": "paced"}})
    assert data == b'{"version":1,"switches":{"all":"observe"},"pacing":{"group:a":"paced"}}'
    assert read_switches(data) == {"switches": {"all": "observe"}, "pacing": {"group:a": "paced"}}
    assert read_switches(b'{"version":1,"switches":{}}') == {"switches": {}, "pacing": {}}
    with pytest.raises(BadNode, match='has no table "pacing"'):
        read_switches(b'{"version":1,"switches":{},"pacing":[]}')


def test_switches_stand_in_one_node() -> None:
    """Switches are sorted in one node outside Kafka's tree."""
    (step,) = steps_of([SwitchChange("listener:a", "off"), SwitchChange("all", "observe")], ZnodeTree())
    assert wire([step]) == [("create", "/sluice/switches", '{"version":1,"switches":{"all":"observe","listener:a":"off"}}')]


NODE_NAMES = st.sampled_from(["alice", "bob"])
ANY_ENTITY: st.SearchStrategy[EntityKey] = st.one_of(
    NODE_NAMES.map(lambda user: entity_key([("user", user)])),
    st.tuples(NODE_NAMES, NODE_NAMES).map(lambda names: entity_key([("user", names[0]), ("client-id", names[1])])),
)


@given(
    st.lists(
        st.lists(st.builds(Change, ANY_ENTITY, st.sampled_from([PRODUCE, FETCH]), st.sampled_from([None, 1.0, 2.0])), max_size=6),
        max_size=5,
    )
)
def test_any_changes_can_be_done_in_their_order(batches: list[list[Change]]) -> None:
    """The operations for any changes are valid in ZooKeeper, and lead to the wanted quotas."""
    nodes: dict[str, Node] = {}
    wanted: dict[EntityKey, dict[str, float]] = {}
    for batch in batches:
        known = ZnodeTree()
        for path, one in nodes.items():
            if not path.endswith("/clients") or path.count("/") == 1:
                known.put(path, one)
        for step in steps_of(batch, known):
            for operation in step.operations:
                _do(nodes, operation)
        for change in batch:
            values = wanted.setdefault(change.entity, {})
            values.pop(change.key, None)
            if change.value is not None:
                values[change.key] = change.value
        after = ZnodeTree()
        for path, one in nodes.items():
            if path.count("/") != 2:
                after.put(path, one)
        assert after.content().quotas == {entity: values for entity, values in wanted.items() if values}


def _do(nodes: dict[str, Node], operation: object) -> None:
    """Apply an operation as ZooKeeper does, or fail where it does."""
    match operation:
        case Create(_, _, _, True):
            return
        case Create(path, data, _, _):
            here = path.removeprefix("/config/")
            above = here.rpartition("/")[0]
            assert here not in nodes
            if "/" in above or above not in ("users", "clients", "ips"):
                assert above in nodes
                nodes[above] = nodes[above]._replace(children=nodes[above].children + 1)
            nodes[here] = Node(data, 0, 0)
        case Write(path, data, version):
            here = path.removeprefix("/config/")
            assert nodes[here].version == version
            nodes[here] = Node(data, version + 1, nodes[here].children)
        case Delete(path, version):
            here = path.removeprefix("/config/")
            assert version in (-1, nodes[here].version)
            assert not nodes[here].children
            del nodes[here]
            above = here.rpartition("/")[0]
            if above in nodes:
                nodes[above] = nodes[above]._replace(children=nodes[above].children - 1)


def test_a_written_node_reads_as_itself() -> None:
    """A written node reads back as its values."""
    config = {PRODUCE: "1", "SCRAM-SHA-256": "ü", "x": ""}
    assert read_config(write_config(config)) == config
    assert read_config(b"") == {}


PATHS = st.sampled_from(["users/a", "users/%61", "users/a/clients/c", "clients/c", "clients/%63", "ips/::1", "users/%zz", "users/b"])
NODES = st.one_of(
    st.none(),
    st.just("may not be read"),
    st.just(Node(b"{", 1, 0)),
    st.just(node()),
    st.sampled_from([1, 2, "x"]).map(lambda value: node(**{PRODUCE: str(value), "connection_creation_rate": str(value)})),
)


@given(st.lists(st.lists(st.tuples(PATHS, NODES), max_size=3), max_size=8))
def test_a_content_that_grew_is_as_one_that_is_made_anew(looks: list[list[tuple[str, Node | str | None]]]) -> None:
    """A content that is updated incrementally equals one that is built anew."""
    grown = ZnodeTree()
    for look in looks:
        for path, one in look:
            grown.put(path, one)
        content = grown.content()
        assert content == ZnodeTree(grown).content()
        if not grown._noncanonical:
            assert grown.content() is content
    there = {path for path, one in dict(pair for look in looks for pair in look).items()}
    grown.keep_only(there - {"users/a", "users/a/clients/c"})
    assert grown.content() == ZnodeTree(grown).content()
    assert grown.clients("users/a") == ()
