# SPDX-License-Identifier: Apache-2.0
"""The built scheduler accepts what the chart configures it with, under the chart's words.

As in ``test_kind.py``, it reads its configuration, makes every plugin from its arguments, writes
what it understood and ends, without a cluster.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.render import PROFILES, render
from pilothouse.home import home
from pilothouse.lab import Lab
from pilothouse.lab.build import obtain
from pilothouse.lab.part import HELM, SCHEDULER
from tests.live.placement.test_kind import ACCOUNT

NAMES = sorted(path.stem for path in PROFILES.glob("*.yaml"))


@pytest.fixture(scope="module")
def lab(machine_before: dict[str, list[str]]) -> Lab:
    return Lab(home() / "lab")


@pytest.fixture(scope="module")
def scheduler(lab: Lab) -> str:
    return str(lab.build(parts=(SCHEDULER,))["pilothouse-scheduler"])


@pytest.fixture(scope="module")
def helm(lab: Lab) -> str:
    return obtain(lab.layout.binaries, parts=(HELM,))["helm"]


@pytest.mark.parametrize("name", NAMES)
def test_the_scheduler_accepts_a_profile_of_the_chart(
    scheduler: str, helm: str, name: str, tmp_path: Path
) -> None:
    values = ("placement.enabled=true", "placement.scheduler.enabled=true")
    text = render(helm, *values, f"placement.scheduler.profile={name}")
    found = {
        document["kind"]: document
        for document in yaml.safe_load_all(text)
        if document and document["metadata"]["name"] == "pilothouse-scheduler"
    }
    profile = yaml.safe_load(found["ConfigMap"]["data"]["profile.yaml"])
    profile["clientConnection"]["kubeconfig"] = f"{tmp_path}/account"  # not in a pod
    (tmp_path / "account").write_text(yaml.safe_dump(ACCOUNT))
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(profile))
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    moved = [word.replace("/etc/pilothouse/scheduler", str(tmp_path)) for word in container["args"]]
    # No cluster answers here, and another scheduler may have the port.
    command = [scheduler, *moved, "--secure-port=0", f"--write-config-to={tmp_path}/understood"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert answer.returncode == 0, answer.stderr
    assert 'scorer="http://pilothouse-scorer.pilothouse-system.svc:10270"' in answer.stderr
    understood = yaml.safe_load((tmp_path / "understood").read_text())
    assert understood["leaderElection"]["leaderElect"] is True
    assert understood["leaderElection"]["resourceName"] == "pilothouse-scheduler"
    assert [one["schedulerName"] for one in understood["profiles"]] == ["pilothouse"]
