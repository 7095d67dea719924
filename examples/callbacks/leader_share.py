"""A group whose share of a cluster-wide budget follows the partitions that each broker leads.

Quotas hold per broker. A team with 30 MB/s for its topics wants 20 MB/s at the broker that leads two of its three partitions and
10 MB/s at the other; and when leaders move, its shares should move along. Here users listed for a team share its budget, and at
every broker the team gets

    budget x (the team's partitions that this broker leads) / (all of the team's partitions that have a leader)

but never less than `floor`, so that clients can find out where to go. Who is in no team is not limited by this callback.

    [callback]
    class = "callbacks.leader_share:LeaderShareQuotas"

    [callback.settings]
    floor = 65_536                    # bytes per second

    [callback.settings.teams.orders]
    users = ["orders-writer", "orders-reader"]
    topics = ["orders.", "payments."] # prefixes
    bytes_per_second = 31_457_280
"""

from collections.abc import Mapping
from typing import Any

from sluice.callback import ClientQuotaCallback, ClientQuotaType, Cluster, KafkaPrincipal

TEAM = "team"
NO_TEAM = ""
BYTES = (ClientQuotaType.PRODUCE, ClientQuotaType.FETCH)
EVERY_BROKER = -1


class Team:
    """Who, which topics, how much in the whole cluster."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.users = frozenset(settings["users"])
        self.topic_prefixes = tuple(settings["topics"])
        self.bytes_per_second = float(settings["bytes_per_second"])


class LeaderShareQuotas(ClientQuotaCallback):
    """Shares per team at this broker; before the cluster is known a team has its whole budget everywhere."""

    def __init__(self) -> None:
        self._broker_id = EVERY_BROKER
        self._floor = 1.0
        self._teams: dict[str, Team] = {}
        self._team_of_user: dict[str, str] = {}
        self._limits: dict[str, float] = {}
        self._cluster: Cluster | None = None

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Take the teams; called again when Sluice has learnt which broker this is."""
        self._broker_id = configs["broker.id"]
        self._floor = float(configs.get("floor", 1.0))
        self._teams = {name: Team(settings) for name, settings in configs["teams"].items()}
        self._team_of_user = {user: name for name, team in self._teams.items() for user in team.users}
        self._limits = self._shares(self._cluster)

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Per request: one dictionary lookup."""
        return {TEAM: self._team_of_user.get(principal.name, NO_TEAM)}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The team's share here; None for who is in no team, and for what is not bytes."""
        return self._limits.get(metric_tags[TEAM]) if quota_type in BYTES else None

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Work the shares out again; True only when one of them changed."""
        self._cluster = cluster
        limits = self._shares(cluster)
        changed = limits != self._limits
        self._limits = limits
        return changed

    def _shares(self, cluster: Cluster | None) -> dict[str, float]:
        return {name: self._share(team, cluster) for name, team in self._teams.items()}

    def _share(self, team: Team, cluster: Cluster | None) -> float:
        if cluster is None or self._broker_id == EVERY_BROKER:
            return team.bytes_per_second
        leaders = [
            partition.leader
            for partition in cluster.partitions
            if partition.leader is not None and partition.topic.startswith(team.topic_prefixes)
        ]
        if not leaders:
            return team.bytes_per_second
        return max(self._floor, team.bytes_per_second * leaders.count(self._broker_id) / len(leaders))
