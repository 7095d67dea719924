"""The CronJobs of deploy/kubernetes/rollup.yaml are valid, and their commands roll up a metering directory."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from pipeline.commands.execution.exit_codes import BAD_INPUT
from pipeline.rollup.ledger import read_ledger
from tests.pipeline.support.first_hour import two_hours
from tests.support.kubernetes.manifests import KUBERNETES, VERSIONS, KubernetesObject, named, objects
from tests.support.places import ROOT

JOBS = objects(KUBERNETES / "rollup.yaml")
HOURLY, DAILY = (named(JOBS, "CronJob", name) for name in ("sluice-rollup", "sluice-rollup-close"))


def container_of(job: KubernetesObject) -> dict[str, Any]:
    """Return the only container of a CronJob."""
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def run(job: KubernetesObject, source: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    """Run the command of a CronJob with folders in place of its volumes; the image's entry point is `sluice`."""
    container = container_of(job)
    words = [*container.get("command", ["sluice"]), *container["args"]]
    replaced = [word.replace("/metering", str(source)).replace("/tables", str(out)) for word in words]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(replaced, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_job_is_valid(version: str) -> None:
    """The schema of Kubernetes accepts both CronJobs, without unknown keys."""
    for job in JOBS:
        kubernetes_validate.validate(job, version, strict=True)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job["metadata"]["name"])
def test_a_volume_is_where_the_command_looks(job: KubernetesObject) -> None:
    """Each mount has a volume; the metering directory is read only, and bad input is not tried again."""
    spec = job["spec"]["jobTemplate"]["spec"]
    mounts = {mount["name"]: mount for mount in container_of(job)["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert {name for name, mount in mounts.items() if mount.get("readOnly")} == {"metering"}
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [BAD_INPUT])


def test_the_commands_roll_up_and_close(tmp_path: Path) -> None:
    """The hourly job builds the tables, the second one closes their day, and an hourly job after it has nothing to do."""
    source, out = two_hours(tmp_path / "in"), tmp_path / "out"
    for job in (HOURLY, DAILY, HOURLY):
        done = run(job, source, out)
        assert done.returncode == 0, done.stderr
    assert "no new file sets" in done.stdout
    assert read_ledger(out).closed_through is not None
    assert run(HOURLY, tmp_path / "absent", out).returncode == BAD_INPUT
