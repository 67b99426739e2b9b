# SPDX-License-Identifier: Apache-2.0
"""The thesis's way on three real workers: the environment, practice, and the comparison."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from pilothouse.cli import main
from pilothouse.cli.placement_live import PROBE_PORT, compare_live
from pilothouse.errors import InvalidSetting
from pilothouse.home import home
from pilothouse.lab import Lab, Wish
from pilothouse.lab.image import PAUSE_IMAGE
from pilothouse.lab.placement import journal
from pilothouse.learn.placement import recorded
from pilothouse.learn.placement.cluster import Cluster, Place
from pilothouse.learn.placement.course import Family
from pilothouse.learn.placement.environment import PlacePods
from pilothouse.learn.placement.thesis_tests import Trial
from pilothouse.policy import artifact, safetensors, shipped

NAMESPACE = "placing"
Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped EL-RL as files that may change."""
    stem, own = tmp_path_factory.mktemp("policy") / "el-rl", shipped("el-rl")
    artifact.write(stem, own.card, safetensors.decode(own.weights, "el-rl"))
    return stem


@pytest.fixture(scope="module")
def lab(machine_before: dict[str, list[str]], policy: Path) -> Iterator[Lab]:
    lab = Lab(home() / "lab")
    wish = Wish(workers=3, scheduler="pilothouse", policy=f"{policy}.json", profile="el-rl")
    lab.up(wish)
    yield lab
    lab.down(keep_logs=True)


def a_place(lab: Lab, **changes: Any) -> Place:
    usual = {"namespace": NAMESPACE, "image": PAUSE_IMAGE}
    return Place(kubeconfig=lab.layout.kubeconfig, **(usual | changes))


def pods_of(lab: Lab) -> dict[str, tuple[str, str]]:
    found = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    return {
        pod["metadata"]["name"]: (pod["spec"].get("nodeName", ""), pod["status"]["phase"])
        for pod in found
    }


@pytest.mark.timeout(900)
def test_environment_on_real_workers_passes_gymnasiums_check_and_places_real_pods(
    lab: Lab,
) -> None:
    family = Family(nodes=(3, 3), steps=6, load_percent=(20, 30), churn=1.0)
    env = PlacePods(max_nodes=4, family=family, backend="live", cluster=a_place(lab))
    check_env(env, skip_render_check=True)

    seen, info = env.reset(seed=3)
    assert info["action_mask"].tolist() == [1, 1, 1, 0]
    assert list(pods_of(lab).values()) == [("", "Pending")], "the pod on offer is a real one"
    *_, info = env.step(3)
    assert info["invalid"]
    seen, _, _, _, info = env.step(1)
    placed = [node for node, phase in pods_of(lab).values() if phase == "Running"]
    assert placed == ["worker-2"]
    assert seen["nodes"][:, 5].tolist() == [0.0, 1.0, 0.0, 0.0], "one node is active"
    env.close()
    assert pods_of(lab) == {}, "nothing is left"


@pytest.mark.timeout(900)
def test_a_namespace_with_other_peoples_pods_is_refused(lab: Lab) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "x", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}],
        },
    }
    lab.kubectl("create", "-f", "-", text=json.dumps(pod))
    with pytest.raises(InvalidSetting, match="holds pods that are not ours"):
        Cluster(a_place(lab, namespace="default"))
    lab.kubectl("delete", "pod", "theirs", "--grace-period=0", "--force")


def served(lab: Lab) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{lab.scorer_url}/v1/table", timeout=10) as answer:
        return str(json.loads(answer.read())["policy"]["version"])


@pytest.mark.timeout(900)
def test_training_on_real_pods_changes_what_the_scorer_serves(
    lab: Lab, policy: Path, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    before = served(lab)
    words = "train placement --policy el-rl --preset thesis --steps 8 --json --namespace placing"
    where = ["--live", str(lab.layout.kubeconfig), "--out", str(policy.parent)]
    assert main([*words.split(), *where]) == 0
    said = json.loads(capsys.readouterr().out)

    assert said["placements"] == 8
    assert said["updates"] == len(set(said["versions"])) == 4
    assert said["versions"][-1] != before
    eventually(lambda: served(lab) == said["versions"][-1], seconds=30)
    assert pods_of(lab) == {}


@pytest.mark.timeout(900)
def test_comparison_on_the_real_scheduler_names_the_profile_and_records_every_placement(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = "compare placement --test 2 --arms default,el-rl --seeds 1 --pods 2 --replacements 4"
    more = "--latency-factor 5 --json --namespace placing"
    where = ["--live", str(lab.layout.kubeconfig), "--out", str(tmp_path)]
    assert main([*words.split(), *more.split(), *where]) == 0
    said = json.loads(capsys.readouterr().out)
    rows = {(r["arm"], r["figure"]): r["mean"] for r in said["rows"]}

    assert said["simulated"] is False
    assert said["profiles"] == {
        "default": "profile stock",
        "el-rl": "profile el-rl, policy el-rl",
    }
    assert any("are taken 5 times as long" in note for note in said["notes"])
    assert rows["el-rl", "hard violations, %"] <= rows["default", "hard violations, %"]
    assert rows["el-rl", "used nodes"] <= rows["default", "used nodes"]
    assert np.isfinite(rows["el-rl", "pending, s"])
    assert rows["default", "pods that fitted nowhere, %"] == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"index.html", "test2-latency.png"}
    binds = recorded.from_journal(journal(lab.layout), fewest=6)
    assert binds.valid.all(), "three nodes in every record"


@pytest.mark.timeout(900)
def test_when_a_node_is_lost_and_a_better_one_joins_the_load_follows(lab: Lab) -> None:
    trial = Trial(test=2, pods=2, replacements=4, nodes_move=True, latency_factor=5)
    comparison = compare_live(
        trial, ("el-rl",), a_place(lab, probe_port=PROBE_PORT), seeds=1, quiet=True
    )
    played = comparison.played["el-rl"]
    chosen = played.node[:, 0]

    assert not played.hopeless.any(), "no placement failed"
    assert chosen[: trial.lost_at].tolist() == [0.0] * trial.lost_at, "the near node"
    assert (chosen[trial.lost_at + 3 :] == 2.0).all(), f"within 3 placements: {chosen}"
    assert len(chosen) > trial.steps, "pods of the lost node were placed again"
