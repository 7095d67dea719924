"""The metering of a running proxy, without the proxy."""

from pathlib import Path

from proxy.base.host_port import HostPort
from proxy.config.model import Config, Listener, Metering, Upstream
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.groups.group_factory import PLAIN
from proxy.enforcement.mode import Enforcement
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scopes import CallbackChoice, QuotaScopes
from proxy.metering.metering import Metering as RunningMetering
from proxy.net.accept.admission import Admission
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.telemetry.counters import Counters
from quota.connections.connection_quotas import ConnectionQuotas
from quota.entity import ANONYMOUS, ClientQuotaEntity

LISTENER = "default"
BROKER = ("b", 1)


def metering_alone(directory: Path, shared: SharedUsage | None = None, **settings: object) -> tuple[RunningMetering, EnforcedGroup]:
    """Return started metering, and a group that decides; needs a running event loop."""
    address = HostPort("127.0.0.1", 9092)
    metering = Metering(dir=directory, proxy_id="edge-1", **settings)  # type: ignore[arg-type]
    config = Config(upstream=Upstream(bootstrap=(address,)), listeners=(Listener(address=address, name=LISTENER),), metering=metering)
    scopes = QuotaScopes(per_cluster=False, choice=CallbackChoice(), statics={}, factories=PLAIN if shared is None else shared)
    scope = scopes.of(BROKER)
    scope.produce.update_quota(ClientQuotaEntity(None, "etl"), 1_000.0)
    counters = Counters()
    policy = Policy(Enforcement())
    admission = Admission(ConnectionQuotas([LISTENER]), counters, policy, per_cluster=False)
    running = RunningMetering(config, scopes, admission, counters.metering, policy, shared)
    running.start(config)
    return running, scope.produce.group(ANONYMOUS, "etl", 0)
