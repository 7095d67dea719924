"""Checks of settings that are valid alone and contradict each other."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from proxy.base.host_port import HostPort, is_wildcard
from proxy.config.checks.admin import advice_on_administration, advice_on_metrics, check_administration
from proxy.config.checks.fleet import check_fleet
from proxy.config.checks.groups import advice_on_groups
from proxy.config.checks.pacing import check_pacing
from proxy.config.checks.stores import check_stores
from proxy.config.checks.tls import advice_on_names, check_tls
from proxy.config.checks.upstream import advice_on_clear_text, check_upstreams
from proxy.config.model import Config, Connections, Listener, Metering
from proxy.config.sections.groups import check_groups
from proxy.config.sections.login import check_credentials
from proxy.config.sections.upstream import Upstream
from proxy.config.sections.upstreams import upstreams_in
from proxy.config.toml_reader import Place


def check_together(values: dict[str, Any], place: Place) -> None:
    """Report contradictions in `values`: fields of Config; missing or None are those that could not be read."""
    listeners = [(f"listener[{at}]", one) for at, one in enumerate(values.get("listeners") or (), 1) if one is not None]
    _check_names(listeners, place)
    _check_listener_tables(listeners, values, place)
    for key, listener in listeners:
        _check_sasl(key, listener, place)
    connections = values.get("connections")
    if connections is not None:
        _check_connections(connections, listeners, place)
    check_administration(values, listeners, place)
    upstream = values.get("upstream")
    upstreams = upstreams_in(listeners, upstream)
    quotas = values.get("quotas")
    check_tls(listeners, upstreams if quotas is None else [*upstreams, ("quotas", quotas)], place)
    check_upstreams(listeners, upstream, place)
    check_credentials(upstreams, values.get("canary"), place)
    if quotas is not None:
        check_stores(quotas, place)
    check_fleet(values, place)
    _check_loop(listeners, upstreams, place)
    if values.get("sidecar"):
        _check_sidecar(listeners, upstreams, place)
    groups = [(f"group[{at}]", one) for at, one in enumerate(values.get("groups") or (), 1) if one is not None]
    check_pacing(values, groups, place)
    check_groups(groups, [listener.name or default_name(at) for at, (_, listener) in enumerate(listeners, 1)], place)
    metering = values.get("metering")
    if metering is not None:
        _check_metering(metering, place)


def _check_metering(metering: Metering, place: Place) -> None:
    if (metering.names == "keyed") != (metering.key_file is not None):
        if metering.key_file is None:
            place.add("metering.key_file", 'is missing, and names are "keyed"', "name a file with 16 random bytes or more")
        else:
            place.add("metering.key_file", 'has no effect, since names are not "keyed"', 'leave it out, or write names = "keyed"')
    for key, is_set in (("topic", metering.topic is not None), ("upload", metering.upload is not None)):
        if is_set and metering.dir is None:
            place.add(f"metering.{key}", "has no effect without metering.dir", "name a directory with metering.dir, or leave it out")


def _check_names(listeners: Sequence[tuple[str, Listener]], place: Place) -> None:
    seen: dict[str, str] = {}
    for key, listener in listeners:
        first = seen.setdefault(listener.name or key, key)
        if first != key:
            place.add(f"{key}.name", f'"{listener.name}" is the name of {first} too', "write another name")


def _check_listener_tables(listeners: Sequence[tuple[str, Listener]], values: dict[str, Any], place: Place) -> None:
    """Report addresses of this process with the same port."""
    taken: list[tuple[str, HostPort]] = []
    for key, listener in listeners:
        taken.append((f"{key}.address", listener.address))
        if listener.broker_ports is not None and listener.first_broker_port is not None:
            place.add(f"{key}.first_broker_port", "has no effect beside broker_ports", "write one of the two")
        counts_ports = listener.broker_ports is None and listener.sni is None and not values.get("sidecar")
        if counts_ports and listener.first_broker_port == listener.address.port:
            place.add(f"{key}.first_broker_port", "is the listener's own port", f"write {listener.address.port + 1}")
        if counts_ports and listener.broker_port(0) is None:
            place.add(f"{key}.address", "leaves no port for brokers, which follow it", "write a lower port or first_broker_port")
        for node_id, port in (listener.broker_ports or {}).items():
            taken.append((f"{key}.broker_ports.{node_id}", HostPort(listener.address.host, port)))
    admin = values.get("admin")
    if admin is not None and admin.address is not None:
        taken.append(("admin.address", admin.address))
    for at, (key, address) in enumerate(taken):
        for other_key, other in taken[:at]:
            if _collide(address, other):
                place.add(key, f"{address} is taken by {other_key}", "write another port")
                break


NODE_IDS_LIKELY: Final = 100
_SASL, _OPEN = ("SASL_SSL", "SASL_PLAINTEXT"), ("SSL", "PLAINTEXT")


def advice_on(config: Config) -> list[str]:
    """Return advice on settings that are valid and could be safer."""
    undeclared = [
        f'listener {listener.name}: protocol = "auto" lets the brokers decide which clients have to log in; '
        f'declare "{_SASL[listener.tls is None]}" where they require a login, "{_OPEN[listener.tls is None]}" where they do not'
        for listener in config.listeners
        if listener.protocol == "auto"
    ]
    by_certificate = [
        f"listener {listener.name}: brokers do not see the certificates of clients: they see Sluice's identity and address, "
        "and their ACLs cannot tell these clients apart"
        for listener in config.listeners
        if listener.tls is not None and listener.tls.client_auth != "none" and not listener.declares_sasl
    ]
    ports = [line for listener in config.listeners for line in _advice_on_ports(listener, config)]
    advice = ports + advice_on_names(config) + advice_on_clear_text(config) + advice_on_administration(config) + advice_on_metrics(config)
    return undeclared + by_certificate + advice + list(advice_on_groups(config.groups))


def _advice_on_ports(listener: Listener, config: Config) -> Iterator[str]:
    """Yield advice on a port of brokers, whose ids are known only later, that the admin port has."""
    admin = config.admin.address
    if admin is None or config.sidecar or listener.sni is not None or listener.broker_ports is not None:
        return
    for node_id in range(NODE_IDS_LIKELY):
        port = listener.broker_port(node_id)
        if port is not None and _collide(admin, HostPort(listener.address.host, port)):
            yield f"admin.address {admin} is the port of broker {node_id} of listener {listener.name}, if there is one; write another port"


def _check_sasl(key: str, listener: Listener, place: Place) -> None:
    if listener.require_sasl is not None and not listener.declares_sasl:
        place.add(f"{key}.require_sasl", "has no effect where no SASL is declared", 'write protocol = "SASL_PLAINTEXT"')
    exposed = listener.protocol == "SASL_PLAINTEXT" and not listener.address.is_loopback
    if exposed and not listener.insecure_plain and (listener.sasl_mechanisms is None or "PLAIN" in listener.sasl_mechanisms):
        place.add(
            f"{key}.protocol",
            "SASL_PLAINTEXT beyond loopback lets passwords of PLAIN cross the network in the clear",
            'write sasl_mechanisms without "PLAIN", or insecure_plain = true where the network is trusted',
        )


def _check_connections(connections: Connections, listeners: Sequence[tuple[str, Listener]], place: Place) -> None:
    if connections.max_connections_per_ip == 0 and not connections.overrides:
        place.add(
            "connections.max_connections_per_ip", "0 admits no client", "write connections.overrides for the addresses that may connect"
        )
    protected = connections.protected_listener
    if protected is None:
        return
    names = [listener.name or default_name(at) for at, (_, listener) in enumerate(listeners, 1)]
    if protected not in names:
        place.add("connections.protected_listener", f'"{protected}" is not a listener', f"write one of {', '.join(names)}")
    elif len(names) == 1:
        place.add("connections.protected_listener", "has no effect with a single listener", "leave it out")


def default_name(at: int) -> str:
    """Return the name of listener number `at`, from 1, that has no name in the configuration."""
    return "default" if at == 1 else f"listener-{at}"


def _collide(one: HostPort, other: HostPort) -> bool:
    if one.port != other.port or one.port == 0:
        return False
    return one.host == other.host or is_wildcard(one.host) or is_wildcard(other.host)


def _check_loop(listeners: Sequence[tuple[str, Listener]], upstreams: Sequence[tuple[str, Upstream]], place: Place) -> None:
    own = {listener.address for _, listener in listeners}
    for key, upstream in upstreams:
        for address in upstream.bootstrap:
            if address in own:
                place.add(f"{key}.bootstrap", f"{address} is Sluice's own listener", "write the address of a broker")


def _check_sidecar(listeners: Sequence[tuple[str, Listener]], upstreams: Sequence[tuple[str, Upstream]], place: Place) -> None:
    for key, upstream in upstreams:
        if len(upstream.bootstrap) > 1:
            place.add(f"{key}.bootstrap", f"a sidecar serves one broker, not {len(upstream.bootstrap)}", "write one address")
    for key, listener in listeners:
        for name in ("advertised_host", "first_broker_port", "broker_ports", "sni"):
            if getattr(listener, name) is not None:
                place.add(f"{key}.{name}", "has no effect in a sidecar, which rewrites no address", "leave it out")
