"""What an operator can set: the file `sluice.toml`, the flags that override it, and every default.

All problems are found at once; unknown keys are refused, and so is a key that nothing would act on.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from proxy.base.host_port import HOST_PORT_REMEDY, HOST_REMEDY, HostPort
from proxy.base.networks import NETWORKS_REMEDY, Networks
from proxy.base.units import SIZE_REMEDY, read_size
from proxy.config.sections.admin import Admin, Audit, QuotaAdmin
from proxy.config.sections.groups import Group
from proxy.config.sections.login import Credentials
from proxy.config.sections.stores import CONNECT_REMEDY, read_connect
from proxy.config.sections.tls import ListenerSni, ListenerTls, UpstreamTls
from proxy.config.sections.upstream import Upstream
from proxy.config.toml_reader import FLAG_ONLY, Reader
from proxy.config.values import (
    AGE_REMEDY,
    PRINCIPALS_REMEDY,
    RUNTIME_DIR_REMEDY,
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
    """An address that clients connect to. A gateway opens one port more for each broker behind it."""

    address: Annotated[HostPort, Reader(read_listen, HOST_PORT_REMEDY)]
    name: Annotated[str, Reader(read_name, "1 to 64 letters, digits, dots, dashes or underscores")] = ""
    protocol: Annotated[Protocol, Reader(read_protocol, '"auto", "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"')] = "auto"
    """What clients may do here. auto: log in or not, as the brokers want it."""
    require_sasl: bool | None = None
    """Whether nothing but a login passes before the broker has said yes. None: where SASL is declared."""
    sasl_mechanisms: Annotated[tuple[str, ...] | None, Reader(read_mechanisms, 'a list such as ["SCRAM-SHA-256"]')] = None
    """Those that may pass. None: all."""
    insecure_plain: bool = False
    """Whether passwords may cross a network without TLS."""
    unknown_principal: Literal["bucket", "reject"] = "bucket"
    """What becomes of clients that the brokers accept and whose user is unknown."""
    oauthbearer_sub_claim: Annotated[str, Reader(read_claim_name, "the name of a claim")] = "sub"
    """Which claim of a bearer token names the user: the brokers' sasl.oauthbearer.sub.claim.name."""
    principal_builder: Annotated[str | None, Reader(read_class_name, '"module:Class"')] = None
    """The operator's own class that says who a client is."""
    principal_builder_settings: Annotated[dict[str, Any], msgspec.Meta(description="a table")] = msgspec.field(default_factory=dict)
    insecure_quota_admin: bool = False
    """Whether ANONYMOUS, if listed, may change quotas through an open port without TLS."""
    tls: ListenerTls | None = None
    """None: plain connections from clients."""
    upstream: Upstream | None = None
    """Which listener of the brokers clients are led to. None: that of `[upstream]`."""
    sni: ListenerSni | None = None
    """None: each broker has a port of its own."""
    advertised_host: Annotated[str | None, Reader(read_reachable_host, HOST_REMEDY)] = None
    """None: the host of `address`, or with a wildcard the local address of the accepted socket."""
    first_broker_port: _Port | None = None
    """Broker n is met at this port + n. None: the port of `address` + 1."""
    broker_ports: Annotated[dict[int, int] | None, Reader(read_broker_ports, "a table such as { 1 = 9093, 2 = 9094 }")] = None
    """Node id to port. When given, a broker that is not in it has no port and counts as unmapped."""
    proxy_protocol_from: Annotated[Networks | None, Reader(read_networks, NETWORKS_REMEDY)] = None
    """Networks of load balancers, whose connections begin with a PROXY header; all others are taken as they are."""
    max_connections: _Count | None = None
    """Of all its ports together. None: as for the process."""
    max_connection_creation_rate: _ConnectionRate | None = None
    """Per second, of all its ports together. None: as for the process."""

    @property
    def declares_sasl(self) -> bool:
        """Whether clients have to log in here, by what is declared."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def requires_login(self) -> bool:
        """Whether nothing but a login passes before the broker has said yes."""
        return self.declares_sasl if self.require_sasl is None else self.require_sasl

    def broker_port(self, node_id: int, bound_port: int | None = None) -> int | None:
        """Return the port at which clients meet broker `node_id`, or None when it has none.

        `bound_port` is what the system picked where `address` has port 0.
        """
        if self.broker_ports is not None:
            return self.broker_ports.get(node_id)
        port = (self.first_broker_port or (bound_port or self.address.port) + 1) + node_id
        return port if 1 <= port <= 65_535 else None


class Enforcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict does."""

    mode: EnforcementMode = "delay"
    delay_max_ms: Annotated[int, msgspec.Meta(ge=0, le=5_000, description="milliseconds from 0 to 5000")] = 5_000
    scope: Scope = "broker"


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Where quotas come from, and the static defaults below all of them."""

    store: Literal["file", "zookeeper", "topic", "forward"] = "file"
    """"forward": brokers keep them, and answer for them."""
    shadow: Literal["observe", "enforce"] | None = None
    """What Sluice does beside brokers that keep, and enforce, the quotas. None: observe."""
    profile: Literal["kraft", "zookeeper"] = "kraft"
    """Which kind of cluster is imitated where quotas are altered: what is refused, and with which words."""
    connect: Annotated[str | None, Reader(read_connect, CONNECT_REMEDY)] = None
    """Where ZooKeeper is: the brokers' setting zookeeper.connect."""
    auth_file: Annotated[Path | None, Reader(read_path, "the path of a file that only its owner may read")] = None
    """With user:password, for ZooKeeper."""
    auth_scheme: Literal["digest", "sasl"] = "digest"
    """How Sluice says who it is: by ZooKeeper's digest scheme, or by a login, SASL DIGEST-MD5."""
    tls: UpstreamTls | None = None
    """None: plain connections to ZooKeeper."""
    topic: Annotated[str | None, Reader(read_topic, "1 to 249 letters, digits, dots, dashes or underscores")] = None
    """Of the cluster behind: compacted, one partition."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=100, description="a whole number from 1 to 100")] | None = None
    """Of the topic, where it is created. None: 3, or as many as there are brokers."""
    create: bool = False
    """Whether the topic, or the nodes of a ZooKeeper that no Kafka uses, are made where they are missing."""
    snapshot: Annotated[Path | None, Reader(read_path, "the path of a file that Sluice may write")] = None
    """Where the last good quotas are kept for a start without the store. None: such a start waits for the store."""
    exempt: Annotated[tuple[str, ...], Reader(read_principals, PRINCIPALS_REMEDY)] = ()
    """Principals that no quota applies to, whatever the switches say."""
    path: Annotated[Path | None, Reader(read_path, "the path of a quota file")] = None
    """Relative to the configuration file; on the command line, to the current directory. None: no quota is set."""
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
    """Threads that serve requests, num.io.threads + num.network.threads; only to show utilization against."""
    window_num: _Windows = 11
    """Samples that a rate is measured over: the broker setting quota.window.num."""
    window_size_seconds: _WindowSeconds = 1
    """Length of each: quota.window.size.seconds."""
    controller_window_num: _Windows = 11
    """The same for controller mutations: controller.quota.window.num."""
    controller_window_size_seconds: _WindowSeconds = 1
    """controller.quota.window.size.seconds."""


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's own class that decides who shares which quota."""

    class_name: Annotated[str, Reader(read_class_name, '"module:Class"')] = msgspec.field(name="class")
    settings: Annotated[dict[str, Any], msgspec.Meta(description="[callback.settings]")] = msgspec.field(default_factory=dict)


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """How many clients may be connected, and how fast they may come."""

    max_connections: _Count = 10_000
    max_connection_creation_rate: _ConnectionRate | None = None
    """Per second. None: as fast as they come."""
    max_connections_per_ip: Annotated[int, msgspec.Meta(ge=0, le=_Int, description="a whole number from 0 to 2147483647")] | None = None
    """None: as many as there is room for."""
    overrides: Annotated[dict[str, int], Reader(read_ip_overrides, 'a table such as { "10.0.0.7" = 500, "etl.example.org" = 50 }')] = (
        msgspec.field(default_factory=dict)
    )
    """What single addresses, or host names, may have instead of `max_connections_per_ip`."""
    max_failed_logins_per_ip: _Count | None = None
    """At once, and per minute after that; beyond, an address may not connect anew. None: as often as the brokers let it fail."""
    max_connections_per_principal: _Count | None = None
    """Of those that logged in. None: as many as there is room for."""
    principal_overrides: Annotated[dict[str, int], Reader(read_principal_overrides, 'a table such as { "User:etl" = 500 }')] = (
        msgspec.field(default_factory=dict)
    )
    """What single principals may have instead of `max_connections_per_principal`."""
    protected_listener: Annotated[str | None, Reader(read_name, "the name of a listener")] = None
    """Its connections come in beyond the limits of the process; those of other listeners make room."""
    ipv6_prefix_bits: Annotated[int, msgspec.Meta(ge=16, le=128, description="a whole number from 16 to 128")] = 128
    """IPv6 addresses with so many first bits in common count as one."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of everything that grows or waits."""

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
    """Where decisions are written to, and how much of each."""

    dir: Annotated[Path | None, Reader(read_path, "the path of a directory")] = None
    """None: nothing is metered."""
    level: Literal["off", "sample", "packed", "trace"] = "packed"
    proxy_id: Annotated[str | None, Reader(read_name, "1 to 64 letters, digits, dots, dashes or underscores")] = None
    """None: the name of the host."""
    rotate_seconds: Annotated[int, msgspec.Meta(ge=5, le=3_600, description="seconds from 5 to 3600")] = 300
    rotate_bytes: _Size = 128 * 1024 * 1024
    names: Literal["plain", "keyed", "none"] = "plain"
    """How users, client-ids, addresses and tags are written: as they are, as keyed hashes, or not at all."""
    key_file: Annotated[Path | None, Reader(read_path, "the path of a file with 16 random bytes or more")] = None
    """Of the hashes."""
    topic: Annotated[str | None, Reader(read_topic, "1 to 249 letters, digits, dots, dashes or underscores")] = None
    """Of the cluster behind: finished file sets are sent to it too."""
    max_bytes: Annotated[int | None, Reader(read_size, SIZE_REMEDY)] = None
    """Of all finished files of this proxy; the oldest go first. None: no limit."""
    max_age: Annotated[int | None, Reader(read_age, AGE_REMEDY)] = None
    """Of a file, in seconds. None: no limit."""

    @property
    def is_on(self) -> bool:
        """Whether anything is metered."""
        return self.dir is not None and self.level != "off"


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """What is said on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, checked; the root of `sluice.toml`."""

    upstream: Upstream
    listeners: tuple[Listener, ...] = msgspec.field(name="listener")
    sidecar: bool = False
    workers: Annotated[int | Literal["auto"], Reader(read_workers, WORKERS_REMEDY)] = 1
    """Processes that relay. "auto": one for each core that this one may use."""
    supervised: bool = False
    """Whether a single process that relays has a supervisor, too."""
    runtime_dir: Annotated[Path | None, Reader(read_runtime_dir, RUNTIME_DIR_REMEDY)] = None
    """Where supervisors meet. None: a folder for the user and the first listener."""
    empty_client_id: Literal["default-entity", "kafka"] = "default-entity"
    unknown_apis: Literal["close", "pass"] = "close"
    broker_configs: Literal["redact", "pass"] = "redact"
    """Whether DescribeConfigs of a broker may show its listeners' addresses."""
    enforcement: Enforcement = Enforcement()
    quotas: Quotas = Quotas()
    quota_admin: QuotaAdmin = QuotaAdmin()
    audit: Audit = Audit()
    groups: tuple[Group, ...] = msgspec.field(name="group", default=())
    """In file order: the first that matches is a client's."""
    callback: Callback | None = None
    admin: Admin = Admin()
    connections: Connections = Connections()
    limits: Limits = Limits()
    metering: Metering = Metering()
    log: Log = Log()
    canary: Credentials | None = None
    """An account without rights, to see that brokers refuse those."""
    profile: Annotated[bool, FLAG_ONLY] = False
    """Print where the time goes when the run ends. Only a flag sets it."""

    @property
    def acting_mode(self) -> EnforcementMode:
        """What a verdict does: nothing where brokers enforce the quotas themselves, unless the operator wants both."""
        if self.quotas.store == "forward" and self.quotas.shadow != "enforce":
            return "observe"
        return self.enforcement.mode


_LATER: Final = "is not part of this version"
LATER_KEYS: Final = {
    "limits.max_connections": "stands under [connections]; write connections.max_connections",
    "listener.sasl": f"ending SASL at Sluice {_LATER}; write protocol, sasl_mechanisms and the like in the listener itself",
    "profile": "is a flag only: sluice run --profile",
}
