"""All settings: the file `sluice.toml`, the flags that override it, and every default.

All problems are reported at once; unknown keys are refused, and so are keys without an effect.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from proxy.base.host_port import HOST_PORT_REMEDY, HOST_REMEDY, HostPort
from proxy.base.networks import NETWORKS_REMEDY, Networks
from proxy.base.units import SIZE_REMEDY, read_size
from proxy.config.sections.admin import Admin, Audit, QuotaAdmin
from proxy.config.sections.fleet import Fleet
from proxy.config.sections.groups import Group
from proxy.config.sections.login import Credentials
from proxy.config.sections.metering import Upload
from proxy.config.sections.stores import CONNECT_REMEDY, read_connect
from proxy.config.sections.tls import ListenerSni, ListenerTls, UpstreamTls
from proxy.config.sections.upstream import Upstream
from proxy.config.toml_reader import FLAG_ONLY, Reader
from proxy.config.values import (
    AGE_REMEDY,
    NAME_REMEDY,
    PRINCIPALS_REMEDY,
    RUNTIME_DIR_REMEDY,
    TOPIC_REMEDY,
    WORKERS_REMEDY,
    read_age,
    read_broker_ports,
    read_claim_name,
    read_class_name,
    read_frame_size,
    read_ip_overrides,
    read_listen,
    read_mechanisms,
    read_name,
    read_networks,
    read_path,
    read_principal_overrides,
    read_principals,
    read_protocol,
    read_rate,
    read_reachable_host,
    read_runtime_dir,
    read_topic,
    read_workers,
)
from quota.paced_schedule import BURST_MS

EnforcementMode = Literal["delay", "mute", "observe"]
Scope = Literal["broker", "cluster"]
Protocol = Literal["auto", "PLAINTEXT", "SASL_PLAINTEXT"]

_Size = Annotated[int, Reader(read_size, SIZE_REMEDY)]
_FrameSize = Annotated[int, Reader(read_frame_size, f"{SIZE_REMEDY}, below 2GiB")]
_Rate = Annotated[float | None, Reader(read_rate, f"bytes per second: {SIZE_REMEDY}")]
_Port = Annotated[int, msgspec.Meta(ge=1, le=65_535, description="a port from 1 to 65535")]
_Ms = Annotated[int, msgspec.Meta(ge=1, le=86_400_000, description="milliseconds from 1 to 86400000")]
_Windows = Annotated[int, msgspec.Meta(ge=1, le=1_000, description="a whole number from 1 to 1000")]
_WindowSeconds = Annotated[int, msgspec.Meta(ge=1, le=86_400, description="seconds from 1 to 86400")]
_Int = 2**31 - 1
_ConnectionRate = Annotated[int, msgspec.Meta(ge=1, le=_Int, description="connections per second from 1 to 2147483647")]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="a whole number from 1 to 1000000")]


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """An address for clients. A gateway opens one more port for each broker behind it."""

    address: Annotated[HostPort, Reader(read_listen, HOST_PORT_REMEDY)]
    name: Annotated[str, Reader(read_name, NAME_REMEDY)] = ""
    protocol: Annotated[Protocol, Reader(read_protocol, '"auto", "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"')] = "auto"
    """The protocol of clients. auto: with or without a login, as the brokers require."""
    require_sasl: bool | None = None
    """Whether only a login passes before the broker has accepted one. None: where SASL is declared."""
    sasl_mechanisms: Annotated[tuple[str, ...] | None, Reader(read_mechanisms, 'a list such as ["SCRAM-SHA-256"]')] = None
    """The allowed mechanisms. None: all."""
    insecure_plain: bool = False
    """Whether passwords may cross a network without TLS."""
    unknown_principal: Literal["bucket", "reject"] = "bucket"
    """How clients are treated that the brokers accept and whose user is unknown."""
    oauthbearer_sub_claim: Annotated[str, Reader(read_claim_name, "the name of a claim")] = "sub"
    """The claim of a bearer token with the user: the brokers' sasl.oauthbearer.sub.claim.name."""
    principal_builder: Annotated[str | None, Reader(read_class_name, '"module:Class"')] = None
    """The operator's own class that determines the principal of a client."""
    principal_builder_settings: Annotated[dict[str, Any], msgspec.Meta(description="a table")] = msgspec.field(default_factory=dict)
    insecure_quota_admin: bool = False
    """Whether ANONYMOUS, if listed, may change quotas through an open port without TLS."""
    tls: ListenerTls | None = None
    """None: client connections without TLS."""
    upstream: Upstream | None = None
    """The listener of the brokers to which clients are connected. None: that of `[upstream]`."""
    sni: ListenerSni | None = None
    """None: each broker has a port of its own."""
    advertised_host: Annotated[str | None, Reader(read_reachable_host, HOST_REMEDY)] = None
    """None: the host of `address`, or with a wildcard the local address of the accepted socket."""
    first_broker_port: _Port | None = None
    """Broker n has this port + n. None: the port of `address` + 1."""
    broker_ports: Annotated[dict[int, int] | None, Reader(read_broker_ports, "a table such as { 1 = 9093, 2 = 9094 }")] = None
    """Node id to port. When given, a broker that is not in it has no port, and its address counts as unmapped."""
    proxy_protocol_from: Annotated[Networks | None, Reader(read_networks, NETWORKS_REMEDY)] = None
    """Networks of load balancers, whose connections begin with a PROXY header; other connections are read without one."""
    max_connections: _Count | None = None
    """Of all ports of the listener together. None: as for the process."""
    max_connection_creation_rate: _ConnectionRate | None = None
    """Per second, of all ports of the listener together. None: as for the process."""

    @property
    def declares_sasl(self) -> bool:
        """Whether clients have to log in at this listener, by its protocol."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def requires_login(self) -> bool:
        """Whether only a login passes before the broker has accepted one."""
        return self.declares_sasl if self.require_sasl is None else self.require_sasl

    def broker_port(self, node_id: int, bound_port: int | None = None) -> int | None:
        """Return the port for clients of broker `node_id`, or None when it has none.

        `bound_port` is the system's choice where `address` has port 0.
        """
        if self.broker_ports is not None:
            return self.broker_ports.get(node_id)
        port = (self.first_broker_port or (bound_port or self.address.port) + 1) + node_id
        return port if 1 <= port <= 65_535 else None


class Enforcement(msgspec.Struct, frozen=True, kw_only=True):
    """How verdicts are enforced."""

    mode: EnforcementMode = "delay"
    delay_max_ms: Annotated[int, msgspec.Meta(ge=0, le=5_000, description="milliseconds from 0 to 5000")] = 5_000
    scope: Scope = "broker"


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """The source of quotas, and the static defaults below all of them."""

    store: Literal["file", "zookeeper", "topic", "forward"] = "file"
    """"forward": the brokers keep quotas and answer requests about them."""
    shadow: Literal["observe", "enforce"] | None = None
    """What Sluice does when the brokers keep, and enforce, the quotas. None: observe."""
    profile: Literal["kraft", "zookeeper"] = "kraft"
    """The kind of cluster whose checks and messages apply when quotas are altered."""
    connect: Annotated[str | None, Reader(read_connect, CONNECT_REMEDY)] = None
    """The address of ZooKeeper: the brokers' setting zookeeper.connect."""
    auth_file: Annotated[Path | None, Reader(read_path, "the path of a file that only its owner may read")] = None
    """File with user:password for ZooKeeper."""
    auth_scheme: Literal["digest", "sasl"] = "digest"
    """How Sluice authenticates: by ZooKeeper's digest scheme, or by SASL DIGEST-MD5."""
    tls: UpstreamTls | None = None
    """None: connections to ZooKeeper without TLS."""
    topic: Annotated[str | None, Reader(read_topic, TOPIC_REMEDY)] = None
    """A topic of the upstream cluster: compacted, one partition."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=100, description="a whole number from 1 to 100")] | None = None
    """Of the topic, when it is created. None: 3, or the number of brokers if that is lower."""
    create: bool = False
    """Whether the topic, or the nodes of a ZooKeeper without Kafka, are created when missing."""
    snapshot: Annotated[Path | None, Reader(read_path, "the path of a file that Sluice may write")] = None
    """File with the last good quotas, for a start without the store. None: such a start waits for the store."""
    exempt: Annotated[tuple[str, ...], Reader(read_principals, PRINCIPALS_REMEDY)] = ()
    """Principals without quotas, whatever the switches are."""
    path: Annotated[Path | None, Reader(read_path, "the path of a quota file")] = None
    """Relative to the configuration file; on the command line, to the current directory. None: no quotas."""
    produce: bool = True
    """False: produced bytes are counted, and no quota applies to them."""
    fetch: bool = True
    """False: fetched bytes are counted, and no quota applies to them."""
    request: bool = True
    """False: no quota applies to request time."""
    controller_mutation: bool = True
    """False: no quota applies to topics and partitions made or deleted."""
    producer_default: _Rate = None
    """Bytes per second for a producer that no quota matches: the old broker setting quota.producer.default."""
    consumer_default: _Rate = None
    """Bytes per second for a consumer that no quota matches: the old broker setting quota.consumer.default."""
    broker_threads: Annotated[int, msgspec.Meta(ge=1, le=10_000, description="a whole number from 1 to 10000")] | None = None
    """Threads of a broker that serve requests, num.io.threads + num.network.threads; only for the display of utilization."""
    pacing: Literal["window", "paced"] = "window"
    """How produced and fetched bytes are held to their bound: by Kafka's window, or evenly by a schedule."""
    paced_burst_ms: Annotated[int, msgspec.Meta(ge=10, le=60_000, description="milliseconds from 10 to 60000")] = BURST_MS
    """How much of its bound a paced group may use at once, in time."""
    window_num: _Windows = 11
    """Samples of a rate: the broker setting quota.window.num."""
    window_size_seconds: _WindowSeconds = 1
    """Length of a sample: quota.window.size.seconds."""
    controller_window_num: _Windows = 11
    """The same for controller mutations: controller.quota.window.num."""
    controller_window_size_seconds: _WindowSeconds = 1
    """controller.quota.window.size.seconds."""


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's own class that assigns clients to groups and sets their limits."""

    class_name: Annotated[str, Reader(read_class_name, '"module:Class"')] = msgspec.field(name="class")
    settings: Annotated[dict[str, Any], msgspec.Meta(description="[callback.settings]")] = msgspec.field(default_factory=dict)


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the number and rate of client connections."""

    max_connections: _Count = 10_000
    max_connection_creation_rate: _ConnectionRate | None = None
    """Per second. None: no limit."""
    max_connections_per_ip: Annotated[int, msgspec.Meta(ge=0, le=_Int, description="a whole number from 0 to 2147483647")] | None = None
    """None: no limit."""
    overrides: Annotated[dict[str, int], Reader(read_ip_overrides, 'a table such as { "10.0.0.7" = 500, "etl.example.org" = 50 }')] = (
        msgspec.field(default_factory=dict)
    )
    """Limits of single IP addresses, or host names, in place of `max_connections_per_ip`."""
    max_failed_logins_per_ip: _Count | None = None
    """Burst, and rate per minute; above it new connections of the address are refused. None: only the brokers limit failures."""
    max_connections_per_principal: _Count | None = None
    """Of authenticated principals. None: no limit."""
    principal_overrides: Annotated[dict[str, int], Reader(read_principal_overrides, 'a table such as { "User:etl" = 500 }')] = (
        msgspec.field(default_factory=dict)
    )
    """Limits of single principals in place of `max_connections_per_principal`."""
    protected_listener: Annotated[str | None, Reader(read_name, "the name of a listener")] = None
    """Its connections are exempt from the limits of the process; connections of other listeners are closed for them."""
    ipv6_prefix_bits: Annotated[int, msgspec.Meta(ge=16, le=128, description="a whole number from 16 to 128")] = 128
    """IPv6 addresses that share this many leading bits count as one."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on memory and waiting time."""

    process_buffer_bytes_max: _Size = 128 * 1024 * 1024
    request_frame_bytes_max: _FrameSize = 100 * 1024 * 1024
    tls_handshake_ms: _Ms = 10_000
    first_frame_ms: _Ms = 10_000
    login_ms: _Ms = 30_000
    frame_grace_ms: _Ms = 10_000
    frame_bytes_per_second_min: _Size = 4 * 1024
    undrained_ms: _Ms = 60_000
    idle_ms: _Ms = 600_000
    departed_ms: _Ms = 60_000
    upstream_connect_ms: _Ms = 5_000
    drain_ms: _Ms = 10_000


class Metering(msgspec.Struct, frozen=True, kw_only=True):
    """Where decisions are written, and how much of each."""

    dir: Annotated[Path | None, Reader(read_path, "the path of a directory")] = None
    """None: no metering."""
    level: Literal["off", "sample", "packed", "trace"] = "packed"
    proxy_id: Annotated[str | None, Reader(read_name, NAME_REMEDY)] = None
    """None: the name of the host."""
    rotate_seconds: Annotated[int, msgspec.Meta(ge=5, le=3_600, description="seconds from 5 to 3600")] = 300
    rotate_bytes: _Size = 128 * 1024 * 1024
    names: Literal["plain", "keyed", "none"] = "plain"
    """How users, client-ids, addresses and tags are written: unchanged, as keyed hashes, or not at all."""
    key_file: Annotated[Path | None, Reader(read_path, "the path of a file with 16 random bytes or more")] = None
    """File with the key of the hashes."""
    topic: Annotated[str | None, Reader(read_topic, TOPIC_REMEDY)] = None
    """A topic of the upstream cluster to which finished file sets are also sent."""
    max_bytes: Annotated[int | None, Reader(read_size, SIZE_REMEDY)] = None
    """Of all finished files of this proxy; the oldest are deleted first. None: no limit."""
    max_age: Annotated[int | None, Reader(read_age, AGE_REMEDY)] = None
    """Of a file, in seconds. None: no limit."""
    upload: Upload | None = None
    """None: files stay on this machine."""

    @property
    def is_on(self) -> bool:
        """Whether metering is enabled."""
        return self.dir is not None and self.level != "off"


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, validated; the root of `sluice.toml`."""

    upstream: Upstream
    listeners: tuple[Listener, ...] = msgspec.field(name="listener")
    sidecar: bool = False
    workers: Annotated[int | Literal["auto"], Reader(read_workers, WORKERS_REMEDY)] = 1
    """Processes that relay. "auto": one for each core that this one may use."""
    supervised: bool = False
    """Whether a single process that relays has a supervisor, too. A fleet always has one."""
    runtime_dir: Annotated[Path | None, Reader(read_runtime_dir, RUNTIME_DIR_REMEDY)] = None
    """Where supervisors meet. None: a folder for the user and the first listener."""
    empty_client_id: Literal["default-entity", "kafka"] = "default-entity"
    unknown_apis: Literal["close", "pass"] = "close"
    broker_configs: Literal["redact", "pass"] = "redact"
    """Whether DescribeConfigs of a broker may return the addresses of its listeners."""
    enforcement: Enforcement = Enforcement()
    quotas: Quotas = Quotas()
    quota_admin: QuotaAdmin = QuotaAdmin()
    audit: Audit = Audit()
    groups: tuple[Group, ...] = msgspec.field(name="group", default=())
    """In file order: the first group that matches a client is its group."""
    callback: Callback | None = None
    fleet: Fleet | None = None
    """None: this proxy shares no budget with others."""
    admin: Admin = Admin()
    connections: Connections = Connections()
    limits: Limits = Limits()
    metering: Metering = Metering()
    log: Log = Log()
    canary: Credentials | None = None
    """An account without rights, to check that brokers refuse it."""
    profile: Annotated[bool, FLAG_ONLY] = False
    """Print a profile when the run ends. Only a flag sets it."""

    @property
    def acting_mode(self) -> EnforcementMode:
        """How verdicts are enforced: not at all where the brokers enforce the quotas, unless the operator wants both."""
        if self.quotas.store == "forward" and self.quotas.shadow != "enforce":
            return "observe"
        return self.enforcement.mode

    @property
    def paced_groups(self) -> dict[str, bool]:
        """Whether each declared group with a pacing of its own is paced."""
        return {group.name: group.pacing == "paced" for group in self.groups if group.pacing is not None}


_LATER: Final = "is not part of this version"
LATER_KEYS: Final = {
    "limits.max_connections": "stands under [connections]; write connections.max_connections",
    "listener.sasl": f"ending SASL at Sluice {_LATER}; write protocol, sasl_mechanisms and the like in the listener itself",
    "profile": "is a flag only: sluice run --profile",
}
