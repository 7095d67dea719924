"""`sluice run` warns of quotas and groups that are valid and probably mean something else."""

from pathlib import Path

import pytest

from proxy.demo.mock_cluster import MockCluster
from tests.support.patience import until_true
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.mock
GROUPS = """
[[group]]
name = "all"
match = { client_id = "*" }
budget = { producer_byte_rate = "1MB" }
[[group]]
name = "batch"
match = { client_id = "batch-*" }
budget = { producer_byte_rate = "1MB" }
"""


def test_what_is_doubtful_is_in_the_log(mock_cluster: MockCluster, tmp_path: Path) -> None:
    """The log names doubtful quotas at the start and after an edit, and a group without members."""
    path = write_quotas(tmp_path / "quotas.toml", [{"client-id": "default", "producer_byte_rate": 1_000}])
    text = f'[upstream]\nbootstrap = "{mock_cluster.bootstrap.partition(",")[0]}"\n[[listener]]\naddress = "127.0.0.1:1"\n'
    config = tmp_path / "sluice.toml"
    config.write_text(text + GROUPS)
    with SluiceProcess(mock_cluster.bootstrap, quotas=path, arguments=("--config", str(config)), name="sluice-doubtful") as sluice:
        [quota] = sluice.events("quotas_doubtful")
        assert quota["problem"].startswith('the quota of client-id = "default" is for a client with exactly this name; write "<default>"')
        [group] = sluice.events("group_without_members")
        assert group["problem"].startswith('group "batch" has no members: each client that it matches is in group "all" before it')
        write_quotas(path, [{"client-id": "team-*", "producer_byte_rate": 1_000}])
        until_true(lambda: len(sluice.events("quotas_doubtful")) == 2, "the warning of the edited file")
        assert "names are no patterns" in sluice.events("quotas_doubtful")[1]["problem"]
