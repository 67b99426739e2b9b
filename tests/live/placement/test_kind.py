# SPDX-License-Identifier: Apache-2.0
"""The built scheduler accepts every profile with kind's addresses, under the static pod's words.

With ``--write-config-to`` it reads its configuration, makes every plugin from its arguments, writes
what it understood and ends, without a cluster.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from pilothouse.home import home
from pilothouse.lab import Lab
from pilothouse.lab.part import SCHEDULER

ROOT = Path(__file__).parents[3]
KIND = ROOT / "deploy" / "kind"
PROFILES = sorted((ROOT / "deploy" / "scheduler").glob("*.yaml"))
ACCOUNT = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "users": [{"name": "none", "user": {}}],
    "current-context": "none",
}


@pytest.fixture(scope="module")
def scheduler(machine_before: dict[str, list[str]]) -> str:
    return str(Lab(home() / "lab").build(parts=(SCHEDULER,))["pilothouse-scheduler"])


def started(scheduler: str, profile: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the static pod's command with its folders moved to ``folder``."""
    (folder / "pilothouse").mkdir()
    (folder / "scheduler.conf").write_text(yaml.safe_dump(ACCOUNT))
    (folder / "pilothouse" / "token").write_text("a-token-for-the-tests\n")
    moved = profile.replace("/etc/kubernetes/", f"{folder}/")
    (folder / "pilothouse" / "profile.yaml").write_text(moved)
    pod = yaml.safe_load((KIND / "kube-scheduler.yaml").read_text())
    words = pod["spec"]["containers"][0]["command"][1:]
    command = [scheduler, *(word.replace("/etc/kubernetes/", f"{folder}/") for word in words)]
    # No cluster answers here, and another scheduler may have the port.
    command += ["--secure-port=0", f"--write-config-to={folder}/understood.yaml"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def for_kind(profile: Path) -> str:
    command = ["sed", "-f", str(KIND / "addresses.sed"), str(profile)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_the_scheduler_accepts_a_profile_for_kind(
    scheduler: str, profile: Path, tmp_path: Path
) -> None:
    answer = started(scheduler, for_kind(profile), tmp_path)

    assert answer.returncode == 0, answer.stderr
    assert 'scorer="http://10.96.0.70:10270"' in answer.stderr
    understood = yaml.safe_load((tmp_path / "understood.yaml").read_text())
    assert understood["leaderElection"]["resourceName"] == "kube-scheduler"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("mode: enforce", "mode: enforec"), ("scorerAddress:", "scorerAdress:"), ("http:", "ftp:")],
)
def test_the_scheduler_refuses_a_profile_with_a_mistake(
    scheduler: str, right: str, wrong: str, tmp_path: Path
) -> None:
    profile = for_kind(ROOT / "deploy/scheduler/el-rl.yaml").replace(right, wrong)
    answer = started(scheduler, profile, tmp_path)

    assert answer.returncode != 0
    assert "pilothousePlacementArgs" in answer.stderr
