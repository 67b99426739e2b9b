# SPDX-License-Identifier: Apache-2.0
"""The learned scheduler on real workers: it follows latency, explains itself and fails open."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilothouse.explain import placements
from pilothouse.home import home
from pilothouse.lab import Lab, Wish, process
from pilothouse.lab.placement import journal
from pilothouse.testing import impostor
from tests.live.placement.cluster import (
    FAR,
    NAMESPACE,
    NEAR,
    Eventually,
    a_pod,
    ask,
    ask_quietly,
    create,
    join,
    leave,
    metrics_of_scheduler,
    node_of,
    place,
    put_at,
    put_near,
    record_of,
    refreshes,
    refusal_of,
    scheduler_with,
    uid_of,
    wait_for_refreshes,
)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def lab(machine_before: dict[str, list[str]]) -> Iterator[Lab]:
    lab = Lab(home() / "lab")
    lab.up(Wish(workers=3, scheduler="pilothouse", policy="el-rl"))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    lab.apply(json.dumps(space))
    yield lab
    lab.down(keep_logs=True)


def test_the_profile_in_use_is_the_shipped_one(lab: Lab) -> None:
    written = Path(lab.layout.run / "scheduler" / "configuration.yaml").read_text()
    assert "PilothousePlacement" in written
    assert "percentageOfNodesToScore: 100" in written


def test_the_load_follows_latency(lab: Lab, eventually: Eventually) -> None:
    put_near(lab, eventually, "worker-1")
    before = [place(lab, eventually, f"before-{i}") for i in range(4)]
    assert before == ["worker-1"] * 4, "one node, and the near one"

    for near in ("worker-2", "worker-3"):
        put_near(lab, eventually, near)
        after = [place(lab, eventually, f"near-{near}-{i}") for i in range(4)]
        assert after[2:] == [near] * 2, f"within 3 placements: {after}"


def test_a_suggestion_published_for_one_pod_moves_that_pod(
    lab: Lab, eventually: Eventually
) -> None:
    put_near(lab, eventually, "worker-1")
    gated = a_pod("suggested")
    gated["spec"]["schedulingGates"] = [{"name": "pilothouse.dev/wait"}]
    lab.kubectl("create", "-f", "-", text=json.dumps(gated))
    scores = {"worker-3": 100, "worker-1": 0, "worker-2": 0}
    uid = uid_of(lab, "suggested")
    ask(lab, "PUT", f"/v1/suggestions/{uid}", {"scores": scores, "ttl_seconds": 120})
    wait_for_refreshes(lab, eventually)
    lab.kubectl(
        "patch", "pod", "suggested", "-n", NAMESPACE, "--type=json",
        "-p", '[{"op": "remove", "path": "/spec/schedulingGates"}]',
    )  # fmt: skip
    assert eventually(lambda: node_of(lab, "suggested")) == "worker-3"
    assert place(lab, eventually, "not-suggested") == "worker-1"
    assert record_of(lab, eventually, "suggested")["path"] == "overridden"


def test_a_node_is_lost_and_a_better_one_joins(lab: Lab, eventually: Eventually) -> None:
    leave(lab, "worker-3")
    put_at(lab, eventually, {"worker-1": 40.0, "worker-2": FAR})
    before = [place(lab, eventually, f"two-nodes-{i}") for i in range(3)]
    assert before[-1] == "worker-1"

    leave(lab, "worker-1")
    assert place(lab, eventually, "one-node") == "worker-2"

    join(lab, eventually, "worker-3")
    put_at(lab, eventually, {"worker-3": NEAR, "worker-2": FAR})
    after = [place(lab, eventually, f"joined-{i}") for i in range(4)]
    assert after[2:] == ["worker-3"] * 2, f"within 3 placements: {after}"
    join(lab, eventually, "worker-1")


def test_whatever_becomes_of_the_scorer_every_pod_is_placed(
    lab: Lab, eventually: Eventually
) -> None:
    planned = lab.planned
    assert planned is not None
    assert lab.scorer_url is not None
    port = planned.ports["scorer"]
    before = lab.component("kube-scheduler")
    table = impostor.good_table(lab.scorer_url)

    lab.signal("scorer", signal.SIGSTOP)  # accepts and never answers
    assert place(lab, eventually, "scorer-hung")
    lab.signal("scorer", signal.SIGCONT)

    lab.kill("scorer")
    wait_for_refreshes(lab, eventually)
    assert place(lab, eventually, "scorer-killed")
    for name, behave in (("slow", impostor.slow(table)), ("flapping", impostor.flapping(table))):
        with impostor.impostor(port, behave):
            for i in range(4):
                wait_for_refreshes(lab, eventually, 1)
                assert place(lab, eventually, f"scorer-{name}-{i}")
    kinds = impostor.garbage(table)
    with impostor.impostor(port, impostor.in_turn(*kinds.values())):
        for i in range(len(kinds) + 1):
            wait_for_refreshes(lab, eventually, 1)
            assert place(lab, eventually, f"scorer-garbage-{i}")
    eventually(lambda: passes_over_stale_tables(lab), seconds=180, every=3)
    lab.restart("scorer")
    eventually(lambda: ask_quietly(lab), seconds=120)

    assert lab.component("kube-scheduler") == before
    assert process.is_alive(before.pid, before.ticks), "the scheduler never restarted"
    assert eventually(lambda: refreshes(lab))
    said = metrics_of_scheduler(lab)
    assert 'pilothouse_scheduler_refreshes_total{result="failed"}' in said
    assert "pilothouse_scheduler_panics_total" not in said


def passes_over_stale_tables(lab: Lab) -> bool:
    """Whether a pod like this one is placed without a table that is too old."""
    pod = a_pod("")
    pod["metadata"] = {"generateName": "scorer-away-", "namespace": NAMESPACE}
    lab.kubectl("create", "-f", "-", text=json.dumps(pod))
    return 'cycles_total{path="fallback: stale table"}' in metrics_of_scheduler(lab)


def test_every_placement_has_its_record_and_its_explanation(
    lab: Lab, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all the tests before: whatever the scorer was doing, the records waited for it."""
    from pilothouse.cli import main

    put_near(lab, eventually, "worker-1")
    place(lab, eventually, "explained")
    found = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    assert found
    for pod in found:
        record = record_of(lab, eventually, pod["metadata"]["name"])
        assert record["node"] == pod["spec"]["nodeName"]
        said = placements.text(record)
        assert "Because" in said
        if pod["metadata"]["name"].startswith(("before-", "near-", "explained")):
            assert record["path"] == "scored"
            assert all(word in said for word in ("Chosen", "latency", "Lost", "Margin")), said
    capsys.readouterr()
    which = f"pod/{NAMESPACE}/explained"
    assert main(["explain", which, "--journal", str(journal(lab.layout))]) == 0
    assert "Placement placement/explained on worker-1" in capsys.readouterr().out


HOSTNAME = "kubernetes.io/hostname"
WORKER_3 = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["worker-3"]}]}
RATHER_WORKER_3 = {  # 200 points by the default's weight of node affinity; the policy has 1,000
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": WORKER_3}
            ]
        }
    }
}
ONLY_WORKER_3 = {"nodeSelector": {HOSTNAME: "worker-3"}}


def test_in_shadow_the_policys_choice_is_recorded_and_not_made(
    lab: Lab, eventually: Eventually
) -> None:
    put_near(lab, eventually, "worker-1")
    assert place(lab, eventually, "enforced", wish=RATHER_WORKER_3) == "worker-1"
    record_of(lab, eventually, "enforced")  # before this scheduler ends

    with scheduler_with(lab, eventually, mode="shadow", fallback="none"):
        assert place(lab, eventually, "shadowed", wish=RATHER_WORKER_3) == "worker-3"
        record = record_of(lab, eventually, "shadowed")
        said = metrics_of_scheduler(lab)

    assert (record["mode"], record["path"], record["why"]) == ("shadow", "skipped", "shadow")
    assert record["node"] == record["chosen"]["node"] == "worker-3"
    assert not record.get("best", False), "it was not what the policy wanted"
    assert record["alternatives"][0]["node"] == "worker-1", "that is"
    assert 'pilothouse_scheduler_comparisons_total{mode="shadow",result="disagreed"}' in said


def test_an_enforced_hard_limit_keeps_a_pod_waiting_until_a_node_is_near_enough(
    lab: Lab, eventually: Eventually
) -> None:
    put_near(lab, eventually, "worker-1")
    assert place(lab, eventually, "unenforced", wish=ONLY_WORKER_3) == "worker-3"
    record_of(lab, eventually, "unenforced")  # before this scheduler ends

    with scheduler_with(lab, eventually, enforceHardLimit=True):
        create(lab, "too-far", wish=ONLY_WORKER_3)
        refusal = eventually(lambda: refusal_of(lab, "too-far"))
        free = place(lab, eventually, "unlimited", wish=ONLY_WORKER_3, annotations={})
        waiting = node_of(lab, "too-far")
        put_near(lab, eventually, "worker-3")
        came = eventually(lambda: node_of(lab, "too-far"), seconds=180)

    assert "farther from the user than the pod's hard limit of 150 ms" in refusal
    assert (free, waiting) == ("worker-3", ""), "who has no limit is not kept"
    assert came == "worker-3"
