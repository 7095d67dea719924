"""What observers may see of the running proxy; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.app.control_plane_state import ControlPlaneState
from proxy.app.data_path_state import DataPathState
from proxy.config.model import Config
from proxy.enforcement.quota_scopes import QuotaScopes
from proxy.net.accept.client_listeners import ClientListeners
from proxy.net.gateway import Gateway
from proxy.net.upstream.prober import Prober
from proxy.quota_store.followed import FollowedQuotas


class LiveState(DataPathState, ControlPlaneState):
    """The `ProxyState` of a running `App`: of one process that does everything."""

    def __init__(
        self,
        config: Config,
        gateway: Gateway,
        listeners: ClientListeners,
        scopes: QuotaScopes,
        probers: Mapping[str, Prober],
        quotas: FollowedQuotas,
    ) -> None:
        DataPathState.__init__(self, gateway, scopes)
        ControlPlaneState.__init__(self, config, gateway.counters, gateway.policy, listeners, probers, quotas)
