"""sluice.toml and flags: the settings that are read, and one line for each problem."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.base.host_port import HostPort
from proxy.config.checks.all import check_together
from proxy.config.flags import Flags
from proxy.config.load import ConfigSource
from proxy.config.model import LATER_KEYS, Config, Limits, Listener
from proxy.config.problem import ConfigProblems, Problem
from proxy.config.toml_reader import Place, read_values
from tests.support.problem_lines import without_place

SMALLEST = '[upstream]\nbootstrap = "kafka:9092"\n[[listener]]\naddress = "127.0.0.1:19092"\n'


def load(tmp_path: Path, text: str, flags: Flags | None = None) -> Config:
    path = tmp_path / "sluice.toml"
    path.write_text(text, encoding="utf-8")
    return ConfigSource(path, flags).load()


def complaints(tmp_path: Path, text: str, flags: Flags | None = None) -> list[str]:
    """Return the problems without the path of the file."""
    with pytest.raises(ConfigProblems) as caught:
        load(tmp_path, text, flags)
    return without_place(caught.value.lines(), tmp_path / "sluice.toml")


def test_smallest_configuration_has_the_documented_defaults(tmp_path: Path) -> None:
    """A configuration with two addresses has the documented defaults."""
    config = load(tmp_path, SMALLEST)
    assert config.upstream.bootstrap == (HostPort("kafka", 9092),)
    assert config.listeners == (Listener(address=HostPort("127.0.0.1", 19092), name="default"),)
    assert (config.enforcement.mode, config.enforcement.delay_max_ms, config.enforcement.scope) == ("delay", 5_000, "broker")
    assert (config.empty_client_id, config.unknown_apis, config.sidecar) == ("default-entity", "close", False)
    assert config.quotas.path is None
    assert config.callback is None
    assert config.admin.address is None
    assert config.limits == Limits()


@pytest.mark.parametrize(("flag", "expected"), [(None, 3), ("2", 2), ("auto", "auto")])
def test_the_number_of_workers(tmp_path: Path, flag: str | None, expected: object) -> None:
    """A flag overrides the number of workers in the file, and the default is one."""
    assert load(tmp_path, "workers = 3\n" + SMALLEST, Flags(workers=flag)).workers == expected
    assert load(tmp_path, SMALLEST).workers == 1


@pytest.mark.parametrize("number", ["0", "65", "'many'", "true", "2.5"])
def test_a_number_of_workers_that_is_none(tmp_path: Path, number: str) -> None:
    """An invalid number of workers is refused with one line."""
    (line,) = complaints(tmp_path, f"workers = {number}\n" + SMALLEST)
    shown = number.replace("'", '"')
    assert line.endswith(f'workers: {shown} is not valid; write a whole number from 1 to 64, or "auto"')


def test_everything_at_once(tmp_path: Path) -> None:
    """Keys of all sections are read."""
    config = load(
        tmp_path,
        """
        empty_client_id = "kafka"
        unknown_apis = "pass"
        broker_configs = "pass"
        [upstream]
        bootstrap = ["kafka-1:9092", "[::1]:9093", "kafka-1:9092"]
        [[listener]]
        name = "inside"
        address = "0.0.0.0:9092"
        advertised_host = "[2001:db8::1]"
        first_broker_port = 9200
        proxy_protocol_from = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]
        [[listener]]
        address = "0.0.0.0:9192"
        broker_ports = { 1 = 9193, 12 = 9194 }
        [enforcement]
        mode = "mute"
        delay_max_ms = 0
        scope = "cluster"
        [quotas]
        path = "conf/quotas.toml"
        fetch = false
        producer_default = "1MiB"
        consumer_default = 2000
        [callback]
        class = "tenants:ByPrefix"
        [callback.settings]
        separator = "-"
        [admin]
        address = "127.0.0.1:0"
        open_quotas = true
        [limits]
        idle_ms = 1000
        request_frame_bytes_max = "10MB"
        [log]
        level = "debug"
        """,
    )
    inside, second = config.listeners
    assert config.upstream.bootstrap == (HostPort("kafka-1", 9092), HostPort("::1", 9093))
    assert (inside.name, inside.advertised_host, inside.broker_port(3), inside.broker_port(60_000)) == ("inside", "2001:db8::1", 9203, None)
    assert list(map(str, inside.proxy_protocol_from or ())) == ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]
    assert second.proxy_protocol_from is None
    assert (second.name, second.broker_port(12), second.broker_port(3)) == ("listener-2", 9194, None)
    assert (config.quotas.path, config.quotas.produce, config.quotas.fetch) == (tmp_path / "conf/quotas.toml", True, False)
    assert (config.quotas.producer_default, config.quotas.consumer_default) == (1_048_576.0, 2_000.0)
    assert config.callback is not None
    assert (config.callback.class_name, config.callback.settings) == ("tenants:ByPrefix", {"separator": "-"})
    assert (config.limits.idle_ms, config.limits.request_frame_bytes_max) == (1_000, 10_000_000)


def test_every_limit_of_connections(tmp_path: Path) -> None:
    """Connection limits of the process, of addresses and of a listener are read."""
    config = load(
        tmp_path,
        SMALLEST
        + """
        max_connections = 50
        max_connection_creation_rate = 10
        [connections]
        max_connections = 200
        max_connection_creation_rate = 100
        max_connections_per_ip = 0
        overrides = { "10.0.0.7" = 5 }
        ipv6_prefix_bits = 64
        """,
    )
    (listener,), limits = config.listeners, config.connections
    assert (listener.max_connections, listener.max_connection_creation_rate) == (50, 10)
    assert (limits.max_connections, limits.max_connection_creation_rate) == (200, 100)
    assert (limits.max_connections_per_ip, limits.overrides, limits.ipv6_prefix_bits) == (0, {"10.0.0.7": 5}, 64)


@pytest.mark.parametrize("key", ["max_connections", "max_connection_creation_rate"])
def test_limits_of_connections_that_are_no_numbers(tmp_path: Path, key: str) -> None:
    """An invalid connection limit is refused with one line."""
    for value in ("0", "-1", "1.5", '"ten"', "true", "99999999999"):
        (line,) = complaints(tmp_path, f"{SMALLEST}[connections]\n{key} = {value}\n")
        assert line.startswith(f"connections.{key}: ")


def test_flags_override_the_file(tmp_path: Path) -> None:
    """A flag overrides its key, and the other keys of the file stay."""
    flags = Flags(
        listen="[::1]:29092",
        upstream="a:1,b:2",
        advertise="edge.example.org",
        quotas="q.toml",
        enforcement="observe",
        admin="localhost:1",
        profile=True,
    )
    config = load(tmp_path, SMALLEST + "[enforcement]\nmode = 'mute'\ndelay_max_ms = 7\n", flags)
    assert config.listeners == (Listener(address=HostPort("::1", 29092), name="default", advertised_host="edge.example.org"),)
    assert config.upstream.bootstrap == (HostPort("a", 1), HostPort("b", 2))
    assert (config.enforcement.mode, config.enforcement.delay_max_ms) == ("observe", 7)
    assert (config.quotas.path, config.admin.address, config.profile) == (Path("q.toml"), HostPort("localhost", 1), True)


def test_flags_alone_are_enough() -> None:
    """Without a file, broker n is advertised at the listener's port plus n plus one."""
    config = ConfigSource(None, Flags(listen="127.0.0.1:9092", upstream="kafka:9092")).load()
    assert [config.listeners[0].broker_port(node_id) for node_id in (0, 1, 7)] == [9093, 9094, 9100]
    assert config.listeners[0].broker_port(2, bound_port=40_000) == 40_003


def test_a_reload_reads_again(tmp_path: Path) -> None:
    """A reload reads the file again and applies the same flags."""
    path = tmp_path / "sluice.toml"
    path.write_text(SMALLEST)
    source = ConfigSource(path, Flags(enforcement="mute"))
    assert source.load().limits.idle_ms == 600_000
    path.write_text(SMALLEST + "[limits]\nidle_ms = 5\n[enforcement]\nmode = 'observe'\n")
    assert (source.load().limits.idle_ms, source.load().enforcement.mode) == (5, "mute")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "[enforcement]\nmode = 'dely'", 'enforcement.mode: "dely" is not valid; write "delay", "mute" or "observe"', id="unknown-mode"
        ),
        pytest.param(
            "[enforcement]\nworkers = 2",
            "enforcement.workers: belongs to the top level of the file; write it above the first table",
            id="a-key-of-the-top-level-below-a-table",
        ),
        pytest.param(
            "[enforcement.log]\nlevel = 'info'",
            "enforcement.log: belongs to the top level of the file; write it as [log]",
            id="a-table-of-the-top-level-inside-another",
        ),
        pytest.param("[enforcement]\nmodus = 'delay'", "enforcement.modus: is not a setting; did you mean mode?", id="unknown-key"),
        pytest.param(
            "[enforcement]\ndelay_max_ms = 5001",
            "enforcement.delay_max_ms: 5001 is above 5000; write milliseconds from 0 to 5000",
            id="above-the-range",
        ),
        pytest.param(
            "[enforcement]\ndelay_max_ms = -1", "enforcement.delay_max_ms: -1 is below 0; write milliseconds from 0 to 5000", id="negative"
        ),
        pytest.param(
            "[enforcement]\ndelay_max_ms = nan",
            "enforcement.delay_max_ms: nan is not a whole number; write milliseconds from 0 to 5000",
            id="nan",
        ),
        pytest.param(
            "[enforcement]\ndelay_max_ms = true",
            "enforcement.delay_max_ms: true is not a whole number; write milliseconds from 0 to 5000",
            id="true-is-no-number",
        ),
        pytest.param(
            "[connections]\nmax_connections = 0",
            "connections.max_connections: 0 is below 1; write a whole number from 1 to 1000000",
            id="zero",
        ),
        pytest.param(
            "[connections]\nmax_connection_creation_rate = 0",
            "connections.max_connection_creation_rate: 0 is below 1; write connections per second from 1 to 2147483647",
            id="no-rate",
        ),
        pytest.param(
            "[connections]\nmax_connections_per_ip = 0",
            "connections.max_connections_per_ip: 0 admits no client; write connections.overrides for the addresses that may connect",
            id="nobody",
        ),
        pytest.param(
            "[connections]\noverrides = { '10.0.0.256' = 5 }",
            'connections.overrides: "10.0.0.256" is neither a host name nor an IP address; '
            'write a table such as { "10.0.0.7" = 500, "etl.example.org" = 50 }',
            id="no-address",
        ),
        pytest.param(
            "[connections]\noverrides = { '10.0.0.1' = -5 }",
            'connections.overrides: -5 is not a number of connections for 10.0.0.1; '
            'write a table such as { "10.0.0.7" = 500, "etl.example.org" = 50 }',
            id="no-count",
        ),
        pytest.param(
            "[connections]\noverrides = { '10.0.0.1' = 5, '::ffff:10.0.0.1' = 6 }",
            'connections.overrides: names one address twice; write a table such as { "10.0.0.7" = 500, "etl.example.org" = 50 }',
            id="one-address-twice",
        ),
        pytest.param(
            "[connections]\nprotected_listener = 'internal'",
            'connections.protected_listener: "internal" is not a listener; write one of default',
            id="no-such-listener",
        ),
        pytest.param(
            "[connections]\nprotected_listener = 'default'",
            "connections.protected_listener: has no effect with a single listener; leave it out",
            id="a-sole-listener",
        ),
        pytest.param(
            "[connections]\nipv6_prefix_bits = 129",
            "connections.ipv6_prefix_bits: 129 is above 128; write a whole number from 16 to 128",
            id="prefix",
        ),
        pytest.param("[quotas]\nwindow_num = 0", "quotas.window_num: 0 is below 1; write a whole number from 1 to 1000", id="no-window"),
        pytest.param(
            "[quotas]\ncontroller_window_size_seconds = 0.5",
            "quotas.controller_window_size_seconds: 0.5 is not a whole number; write seconds from 1 to 86400",
            id="half-a-second",
        ),
        pytest.param(
            "[limits]\nframe_bytes_per_second_min = '10 MBB'",
            'limits.frame_bytes_per_second_min: "10 MBB" is not a size; write a whole number of bytes, such as 1048576, "1MiB" or "10MB"',
            id="10-MBB",
        ),
        pytest.param(
            "[limits]\nrequest_frame_bytes_max = '2GiB'",
            'limits.request_frame_bytes_max: "2GiB" is more than 2147483647; '
            'write a whole number of bytes, such as 1048576, "1MiB" or "10MB", below 2GiB',
            id="more-than-a-frame-can-be",
        ),
        pytest.param(
            "[quotas]\nproducer_default = inf",
            'quotas.producer_default: inf is not a whole number; write bytes per second: a whole number of bytes, such as 1048576, "1MiB" or "10MB"',
            id="infinite-default",
        ),
        pytest.param("[quotas]\nproduce = 'yes'", 'quotas.produce: "yes" is neither true nor false; write true or false', id="not-a-bool"),
        pytest.param("[quotas]\npath = 5", "quotas.path: 5 is not a path; write the path of a quota file", id="not-a-path"),
        pytest.param("[quotas]\nstore = 'paper'", 'quotas.store: "paper" is not valid; write "file", "zookeeper", "topic" or "forward"', id="no-store"),
        pytest.param(
            "[quotas]\nconnect = 'zk:2181'",
            'quotas.connect: has no effect with store = "file"; leave it out, or write store = "zookeeper"',
            id="connect-without-zookeeper",
        ),
        pytest.param(
            "[quotas]\nstore = 'zookeeper'\nconnect = 'zk:2181'\nauth_scheme = 'sasl'",
            "quotas.auth_scheme: has no effect without auth_file; name the file with user:password, or leave this out",
            id="login-without-a-name",
        ),
        pytest.param(
            "[quotas]\nauth_scheme = 'kerberos'",
            'quotas.auth_scheme: "kerberos" is not valid; write "digest" or "sasl"',
            id="login-by-kerberos",
        ),
        pytest.param(
            "[quotas.tls]\nserver_name = 'zk'",
            'quotas.tls: has no effect with store = "file"; leave it out, or write store = "zookeeper"',
            id="tls-without-zookeeper",
        ),
        pytest.param(
            "[quotas]\nstore = 'zookeeper'\nconnect = 'zk:2182'\n[quotas.tls]\ncertificate = 'own.pem'",
            "quotas.tls.key: is missing beside the other of the two; name both, or none",
            id="tls-to-zookeeper-without-key",
        ),
        pytest.param(
            "[quotas]\nstore = 'forward'\npaced_burst_ms = 500",
            'quotas.paced_burst_ms: has no effect with store = "forward"; leave it out',
            id="burst-of-a-window",
        ),
        pytest.param(
            "[[group]]\nname = 'all'\nbudget.producer_byte_rate = 9\n[[group]]\nname = 'one'\nparent = 'all'\npacing = 'paced'\nmatch.user = 'a'",
            'group[2].pacing: differs from that of its parent "all"; write pacing = "window" for both',
            id="paced-below-a-window",
        ),
        pytest.param(
            "[quotas]\npacing = 'paced'\nstore = 'forward'",
            'quotas.pacing: cannot be "paced" with store = "forward": the brokers enforce by the window; '
            'write pacing = "window", or leave it out',
            id="paced-by-brokers",
        ),
        pytest.param(
            "[quotas]\nsnapshot = 's.toml'",
            'quotas.snapshot: has no effect with store = "file"; leave it out, or write store = "zookeeper" or store = "topic"',
            id="snapshot-of-a-file",
        ),
        pytest.param(
            "[quotas]\nstore = 'topic'",
            'quotas.topic: is missing with store = "topic"; write the name of a compacted topic with one partition',
            id="no-topic",
        ),
        pytest.param(
            "[quotas]\nstore = 'zookeeper'\nconnect = 'zk:2181/../x'",
            'quotas.connect: "/../x" is not a path of ZooKeeper; write addresses of ZooKeeper such as "zk-1:2181,zk-2:2181", '
            'followed by "/chroot" where Kafka has one',
            id="chroot",
        ),
        pytest.param(
            "[quotas]\nstore = 'topic'\ntopic = 'q'\nreplication_factor = 3",
            "quotas.replication_factor: has no effect without create; write create = true, or leave it out",
            id="factor-of-nothing",
        ),
        pytest.param("[metering]\nlevel = 'all'", 'metering.level: "all" is not valid; write "off", "sample", "packed" or "trace"', id="metering"),
        pytest.param(
            '[metering.upload]\nurl = "s3://bucket/x"',
            "metering.upload: has no effect without metering.dir; name a directory with metering.dir, or leave it out",
            id="metering nowhere",
        ),
        pytest.param(
            '[metering.upload]\nurl = "ftp://host/x"',
            'metering.upload.url: has the scheme "ftp", which is none of s3, s3a, gs, abfs, abfss; write a URL of a directory in an'
            " object store, such as s3://BUCKET/metering",
            id="upload scheme",
        ),
        pytest.param(
            '[metering.upload]\nurl = "s3://key:word@bucket/x"',
            "metering.upload.url: has a password, and credentials come from the environment or the role of the machine; write a URL of a"
            " directory in an object store, such as s3://BUCKET/metering",
            id="upload password",
        ),
        pytest.param(
            "[metering.upload]\nlocal_bytes_max = '1GiB'",
            "metering.upload.url: is missing; write a URL of a directory in an object store, such as s3://BUCKET/metering",
            id="upload url",
        ),
        pytest.param(
            "[quota_admin]\nauthority = 'list'",
            'quota_admin.principals: is missing: the list is empty; write principals = ["User:NAME"], or authority = "nobody"',
            id="quota-admin",
        ),
        pytest.param(
            "[limits]\nmax_connections = 5",
            "limits.max_connections: stands under [connections]; write connections.max_connections",
            id="moved",
        ),
        pytest.param("[callback]\nclass = 'tenants'", 'callback.class: "tenants" names no class; write "module:Class"', id="callback-class"),
        pytest.param("[callback]\nclass = 'a:B'\nsettings = 1", "callback.settings: 1 is not valid; write [callback.settings]", id="callback-settings"),
        pytest.param("[admin]\naddress = 9000", "admin.address: not a text; write HOST:PORT with a port from 1 to 65535; an IPv6 address stands in brackets, as in [::1]:9092", id="admin"),
        pytest.param("[admin]\naddress = '127.0.0.1:19092'", "admin.address: 127.0.0.1:19092 is taken by listener[1].address; write another port", id="admin-on-the-listener"),
        pytest.param("[profile]", "profile: is a flag only: sluice run --profile; leave it out", id="profile-is-a-flag"),
    ],
)  # fmt: skip
def test_one_clear_line(tmp_path: Path, text: str, line: str) -> None:
    """Each problem is one line with the key, what is wrong, and what to write."""
    assert complaints(tmp_path, SMALLEST + text) == [line]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('address = "127.0.0.1"', 'listener[1].address: "127.0.0.1" has no port; write HOST:PORT with a port from 1 to 65535; an IPv6 address stands in brackets, as in [::1]:9092'),
        ('address = "h:1"\nprotocol = "tls"', 'listener[1].protocol: "tls" is not valid; write "auto", "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"'),
        ('address = "h:1"\nprotocol = "SASL_SSL"', 'listener[1].protocol: SASL_SSL needs a certificate; write the table listener[1].tls'),
        ('address = "h:1"\nprotocol = "sasl_plaintext"', 'listener[1].protocol: SASL_PLAINTEXT beyond loopback lets passwords of PLAIN cross the network in the clear; write sasl_mechanisms without "PLAIN", or insecure_plain = true where the network is trusted'),
        ('address = "h:1"\nprotocol = "sasl_plaintext"\nsasl_mechanisms = ["GSSAPI", "PLAIN"]', 'listener[1].protocol: SASL_PLAINTEXT beyond loopback lets passwords of PLAIN cross the network in the clear; write sasl_mechanisms without "PLAIN", or insecure_plain = true where the network is trusted'),
        ('address = "h:1"\nrequire_sasl = true', 'listener[1].require_sasl: has no effect where no SASL is declared; write protocol = "SASL_PLAINTEXT"'),
        ('address = "h:1"\nsasl_mechanisms = []', 'listener[1].sasl_mechanisms: names no mechanism; write a list such as ["SCRAM-SHA-256"]'),
        ('address = "h:1"\nsasl_mechanisms = ["plain"]', 'listener[1].sasl_mechanisms: "plain" is not the name of a SASL mechanism; write a list such as ["SCRAM-SHA-256"]'),
        ('address = "h:1"\nunknown_principal = "no"', 'listener[1].unknown_principal: "no" is not valid; write "bucket" or "reject"'),
        ('address = "h:1"\noauthbearer_sub_claim = ""', 'listener[1].oauthbearer_sub_claim: "" is not the name of a claim; write the name of a claim'),
        ('address = "h:1"\nprincipal_builder = "x"', 'listener[1].principal_builder: "x" names no class; write "module:Class"'),
        ('address = "h:1"\nfirst_broker_port = 70000', "listener[1].first_broker_port: 70000 is above 65535; write a port from 1 to 65535"),
        ('address = "h:5"\nfirst_broker_port = 5', "listener[1].first_broker_port: is the listener's own port; write 6"),
        ('address = "h:65535"', "listener[1].address: leaves no port for brokers, which follow it; write a lower port or first_broker_port"),
        ('address = "h:1"\nbroker_ports = {a = 2}', 'listener[1].broker_ports: "a" is not a node id; write a table such as { 1 = 9093, 2 = 9094 }'),
        ('address = "h:1"\nbroker_ports = {1 = 0}', "listener[1].broker_ports: 0 is not a port for broker 1; write a table such as { 1 = 9093, 2 = 9094 }"),
        ('address = "h:1"\nbroker_ports = {1 = 2, 2 = 2}', "listener[1].broker_ports: gives two brokers one port; write a table such as { 1 = 9093, 2 = 9094 }"),
        ('address = "h:1"\nbroker_ports = {1 = 1}', "listener[1].broker_ports.1: h:1 is taken by listener[1].address; write another port"),
        ('address = "h:1"\nfirst_broker_port = 7\nbroker_ports = {1 = 2}', "listener[1].first_broker_port: has no effect beside broker_ports; write one of the two"),
        ('address = "h:1"\nproxy_protocol_from = "10.0.0.0/8"', 'listener[1].proxy_protocol_from: "10.0.0.0/8" is not a list of networks; write a list such as ["10.0.0.0/8", "fd00::/8", "192.0.2.7"]'),
        ('address = "h:1"\nproxy_protocol_from = []', 'listener[1].proxy_protocol_from: names no network; write a list such as ["10.0.0.0/8", "fd00::/8", "192.0.2.7"]'),
        ('address = "h:1"\nproxy_protocol_from = ["10.0.0.7/8"]', 'listener[1].proxy_protocol_from: "10.0.0.7/8" is an address inside 10.0.0.0/8, not a network; write a list such as ["10.0.0.0/8", "fd00::/8", "192.0.2.7"]'),
        ('address = "h:1"\nadvertised_host = "0.0.0.0"', 'listener[1].advertised_host: "0.0.0.0" names no machine; write a host name or an IP address that clients can reach'),
        ('address = "kafka:9092"', "upstream.bootstrap: kafka:9092 is Sluice's own listener; write the address of a broker"),
        ('address = "h:1"\n[[listener]]\naddress = "0.0.0.0:1"', "listener[2].address: 0.0.0.0:1 is taken by listener[1].address; write another port"),
        ('address = "h:1"\nname = "a"\n[[listener]]\naddress = "h:99"\nname = "a"', 'listener[2].name: "a" is the name of listener[1] too; write another name'),
        ('name = "a b"\naddress = "h:1"', 'listener[1].name: "a b" is not a name; write 1 to 64 letters, digits, dots, dashes or underscores'),
        ("", "listener[1].address: is missing; write HOST:PORT with a port from 1 to 65535; an IPv6 address stands in brackets, as in [::1]:9092"),
    ],
)  # fmt: skip
def test_listeners(tmp_path: Path, text: str, line: str) -> None:
    """A listener that cannot be bound, or conflicts with another, is refused with one line."""
    assert complaints(tmp_path, f'[upstream]\nbootstrap = "kafka:9092"\n[[listener]]\n{text}\n') == [line]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("bootstrap = []", 'upstream.bootstrap: names no address; write a list such as ["kafka-1:9092", "kafka-2:9092"]'),
        ("bootstrap = 9092", 'upstream.bootstrap: 9092 is not a list of addresses; write a list such as ["kafka-1:9092", "kafka-2:9092"]'),
        ("bootstrap = ['kafka']", 'upstream.bootstrap: "kafka" has no port; write a list such as ["kafka-1:9092", "kafka-2:9092"]'),
        ("bootstrap = '0.0.0.0:9092'", 'upstream.bootstrap: a wildcard address cannot be connected to; write a list such as ["kafka-1:9092", "kafka-2:9092"]'),
        ("", 'upstream.bootstrap: is missing; write a list such as ["kafka-1:9092", "kafka-2:9092"]'),
    ],
)  # fmt: skip
def test_upstream(tmp_path: Path, text: str, line: str) -> None:
    """An upstream without a valid address is refused with one line."""
    assert complaints(tmp_path, f'[upstream]\n{text}\n[[listener]]\naddress = "h:1"\n') == [line]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('upstream = 1\nlistener = "x"', ['upstream: 1 is not a table; write [upstream]', 'listener: "x" is not a list of tables; write [[listener]]']),
        ("", ["upstream: is missing; write [upstream]", "listener: is missing; write [[listener]]"]),
    ],
)  # fmt: skip
def test_wrong_shapes(tmp_path: Path, text: str, lines: list[str]) -> None:
    """A missing section or a value in place of a section is refused with one line."""
    assert complaints(tmp_path, text) == lines


def test_a_sidecar_has_one_broker_and_no_addresses_of_its_own(tmp_path: Path) -> None:
    """Settings that have no effect in a sidecar are refused."""
    text = 'sidecar = true\n[upstream]\nbootstrap = "a:1,b:1"\n[[listener]]\naddress = "h:65535"\nadvertised_host = "x"\nfirst_broker_port = 65535\n'
    assert complaints(tmp_path, text) == [
        "upstream.bootstrap: a sidecar serves one broker, not 2; write one address",
        "listener[1].advertised_host: has no effect in a sidecar, which rewrites no address; leave it out",
        "listener[1].first_broker_port: has no effect in a sidecar, which rewrites no address; leave it out",
    ]


def test_all_problems_at_once(tmp_path: Path) -> None:
    """All problems of the file and the flags are reported together."""
    text = '[upstream]\nbootstrap = "x"\n[[listener]]\naddress = "y"\n[enforcement]\nmode = "z"\n[limits]\nidle_ms = 0\n[typo]\n'
    assert [line.split(": ")[0] for line in complaints(tmp_path, text, Flags(admin="q"))] == [
        "command line",
        "typo",
        "upstream.bootstrap",
        "listener[1].address",
        "enforcement.mode",
        "limits.idle_ms",
    ]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        pytest.param(
            b"[upstream\n", "is not TOML: Expected ']' at the end of a table declaration (at line 1, column 10)", id="broken-toml"
        ),
        pytest.param(b"a = 1\na = 2\n", "is not TOML: Cannot overwrite a value (at line 2, column 6)", id="key-twice"),
        pytest.param(b"a = '\xff'", "is not UTF-8 at byte 5; save it as UTF-8", id="not-utf-8"),
        pytest.param(b"#" * (1024 * 1024 + 1), "is larger than 1048576 bytes; split it or make it smaller", id="too-large"),
        pytest.param(b"a = " + b"[" * 100_000, "is not TOML: nested too deeply", id="nested-too-deeply"),
    ],
)
def test_not_toml(tmp_path: Path, data: bytes, line: str) -> None:
    """A file that is not TOML is refused with one line that gives the position."""
    path = tmp_path / "sluice.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigProblems) as caught:
        ConfigSource(path).load()
    assert caught.value.lines() == [f"{path}: {line}"]


@pytest.mark.parametrize(("name", "line"), [("nope.toml", "No such file or directory"), (".", "Is a directory")])
def test_unreadable_file(tmp_path: Path, name: str, line: str) -> None:
    """A missing file or a directory is refused with one line."""
    with pytest.raises(ConfigProblems) as caught:
        ConfigSource(tmp_path / name).load()
    assert caught.value.lines() == [f"{tmp_path / name}: cannot be read: {line}; name a file that Sluice may read"]


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (Flags(), ["--upstream: is missing; write --upstream HOST:PORT, or name a file with --config", "--listen: is missing; write --listen HOST:PORT, or name a file with --config"]),
        (Flags(listen="x", upstream="k:1"), ['--listen: "x" has no port; write --listen HOST:PORT with a port from 1 to 65535; an IPv6 address stands in brackets, as in [::1]:9092']),
        (Flags(listen="h:1", upstream="k:1", enforcement="off"), ['--enforcement: "off" is not valid; write --enforcement delay, mute or observe']),
        (Flags(listen="h:1", upstream="k:1,k:2", sidecar=True), ["--upstream: a sidecar serves one broker, not 2; write one address"]),
        (Flags(listen="h:1", upstream="k:1", admin="h:1"), ["--admin: h:1 is taken by listener[1].address; write another port"]),
        (Flags(listen="h:1", upstream="k:1", advertise="::"), ['--advertise: "::" names no machine; write --advertise with a host name or an IP address that clients can reach']),
        (Flags(listen="h:1", upstream="k:1", quotas=""), ['--quotas: "" is not a path; write --quotas with the path of a quota file']),
    ],
)  # fmt: skip
def test_flags_are_judged_as_flags(flags: Flags, lines: list[str]) -> None:
    """Without a file, problems are reported with the names of the flags."""
    with pytest.raises(ConfigProblems) as caught:
        ConfigSource(None, flags).load()
    assert caught.value.lines() == [f"command line: {line}" for line in lines]


def test_listen_needs_to_know_which_listener(tmp_path: Path) -> None:
    """The flag --listen is refused when the file has several listeners."""
    lines = complaints(tmp_path, SMALLEST + '[[listener]]\naddress = "h:3"\n', Flags(listen="h:9"))
    assert lines == ["command line: --listen: the file has 2 listeners; set it in the file"]


def test_a_hostile_key_cannot_move_the_cursor(tmp_path: Path) -> None:
    """Control and direction characters of a key are escaped in the message."""
    (line,) = complaints(tmp_path, SMALLEST + '[log]\n"\\u001b[2J\\u202e" = 1\n')
    assert line == "log.\\u001b[2J\\u202e: is not a setting; known here: level"


def test_many_problems_are_cut(tmp_path: Path) -> None:
    """Of a thousand problems the first hundred are reported, with the number of the others."""
    lines = complaints(tmp_path, SMALLEST + "[log]\n" + "".join(f"a{n} = 1\n" for n in range(1_000)))
    assert (len(lines), lines[-1]) == (101, "and 900 more problems")


TOML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["a:1", "[::1]:2", "1MiB", "delay"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["mode", "address", "path", "class", "x"]), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: value is not None)  # fmt: skip
SECTION_NAMES = [
    "upstream",
    "listener",
    "sidecar",
    "enforcement",
    "quotas",
    "callback",
    "fleet",
    "admin",
    "limits",
    "log",
    "metering",
    "unknown_apis",
]


@given(st.dictionaries(st.sampled_from(SECTION_NAMES), TOML_VALUES, max_size=6))
def test_any_values_are_a_configuration_or_problems(table: dict[str, object]) -> None:
    """Any values give a configuration or one-line problems."""
    problems: list[Problem] = []
    values = read_values(Config, table, Place("f", "", problems, LATER_KEYS))
    check_together(values, Place("f", "", problems, LATER_KEYS))
    assert not [problem for problem in problems if "\n" in str(problem)]
    if not problems:
        Config(**values)


@pytest.mark.parametrize(
    ("protocol", "require_sasl", "expected"),
    [
        ("auto", None, False),
        ("PLAINTEXT", None, False),
        ("SSL", None, False),
        ("SASL_PLAINTEXT", None, True),
        ("SASL_SSL", None, True),
        ("SASL_SSL", False, False),
    ],
)
def test_a_login_is_required_where_sasl_is_declared(protocol: Any, require_sasl: bool | None, expected: bool) -> None:
    """A login is required for SASL protocols unless `require_sasl` is false."""
    listener = Listener(address=HostPort("127.0.0.1", 1), protocol=protocol, require_sasl=require_sasl)
    assert listener.requires_login is expected


def test_exempt_principals(tmp_path: Path) -> None:
    """Exempt principals are read without duplicates, and invalid ones are refused."""
    config = load(tmp_path, f'{SMALLEST}[quotas]\nexempt = ["User:ops", "User:backup", "User:ops"]')
    assert config.quotas.exempt == ("User:ops", "User:backup")
    for value in ('"User:ops"', '["ops"]', "[7]", '["User:"]'):
        (line,) = complaints(tmp_path, f"{SMALLEST}[quotas]\nexempt = {value}")
        assert line.startswith("quotas.exempt: ")
        assert line.endswith('; write a list such as ["User:ops", "User:monitoring"]')
