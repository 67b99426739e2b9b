# SPDX-License-Identifier: Apache-2.0
"""Each action on real pods and nodes: one decision, its writes in the server's log, its end."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import pytest

from pilothouse.act.fields import Mark
from pilothouse.act.hand import TAKEN, Answer, Hand, Signature, resize_state
from pilothouse.act.tickets import Step
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.quantity import mebibytes
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.domain import NOT_IN_FORCE, Action, ActionKind, Status, Verb
from pilothouse.errors import ClusterUnreachable, LabFailed
from pilothouse.journal import Cycle, JournalReader
from pilothouse.lab import Lab
from pilothouse.nodeagent import Clock, NodeAgent
from tests.live.act.conftest import pods_of, read, token_kubeconfig
from tests.live.act.helm import (
    ACTUATOR,
    JANITOR,
    SPACE,
    Helm,
    audit,
    done,
    place_of,
    said,
    witnessed,
)
from tests.live.act.objects import (
    a_budget,
    an_autoscaler,
    gated,
    limit_of,
    only,
    replicas,
    taints,
    where,
)
from tests.live.conftest import a_deployment, is_ready

Make = Callable[..., Any]
BUSY = {"arguments": ("--burn-millicores=400",), "limits": {"cpu": "300m", "memory": "64Mi"}}


def assert_joined(helm: Helm, lab: Lab, action: Action, *expected: tuple[str, str]) -> None:
    """One decision in the journal, and each of its writes in the server's log, once, by its id.

    A patch that met a conflict wrote nothing: somebody else was quicker, and it was tried again.
    """
    record = JournalReader(helm.journal.path).find(action.id.partition(".")[0]).record
    assert isinstance(record, Cycle)
    assert action in record.decision.actions
    seen = [witnessed(lab, write.intent) for write in action.writes]
    assert [
        [(user, verb, what) for user, verb, what, code in one if (verb, code) != ("patch", 409)]
        for one in seen
    ] == [[(ACTUATOR, verb, what)] for verb, what in expected]
    ticket = witnessed(lab, f"{action.id}.ticket")
    assert [(verb, what) for _, verb, what, _ in ticket] == [("create", "tickets")]


def cpu_used(lab: Lab, node: str, pod: str, seconds: float, *, since: float) -> float:
    """Cores a pod really used after a moment, by its kubelet's own counter, as the apiserver
    proxies it."""

    line = re.compile(rf'container_cpu_usage_seconds_total{{.*pod="{pod}".*}} ([0-9.e+]+) ([0-9]+)')

    def look() -> tuple[float, float]:
        page = lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/metrics/resource")
        found = line.search(page)
        assert found, "the kubelet does not know the pod"
        return float(found[1]), int(found[2]) / 1000

    def look_after(moment: float) -> tuple[float, float]:
        """The first count taken after a moment; an idle kubelet counts every ten seconds or so."""
        deadline = monotonic() + 60
        while (found := look())[1] < moment:
            assert monotonic() < deadline, "the kubelet counts no more"
            sleep(0.5)
        return found

    used, at = look_after(since)
    more, now = look_after(at + seconds)
    return (more - used) / (now - at)


def test_throttle_slows_a_busy_pod_in_place_and_gives_its_limit_back(
    helm: Helm,
    installed: Lab,
    harbor: Make,
    eventually: Make,
    measured: Callable[..., None],
) -> None:
    (pod,) = harbor("busy", **BUSY)
    name, before = pod["metadata"]["name"], pod["status"]["containerStatuses"][0]
    helm.know(helm.pod(name))
    at_first = cpu_used(installed, pod["spec"]["nodeName"], name, 4, since=0)
    began = monotonic()
    action, receipts = helm.act(ActionKind.THROTTLE, helm.pod(name), factor=0.5)
    assert done(receipts), receipts
    (now,) = pods_of(installed, "busy")
    assert limit_of(now) == "150m"
    eventually(lambda: resize_state(pods_of(installed, "busy")[0]) == TAKEN, every=0.1)
    used = cpu_used(installed, pod["spec"]["nodeName"], name, 4, since=time())
    took = monotonic() - began
    measured(cores_before=round(at_first, 3), cores_after=round(used, 3), seconds=round(took, 1))
    assert used < 0.150 * 1.15, f"still uses {used:.3f} cores, used {at_first:.3f} before"
    assert took < 30
    assert_joined(helm, installed, action, ("patch", "pods/resize"))
    helm.turn_until(lambda: limit_of(pods_of(installed, "busy")[0]) == "300m", seconds=45)
    (after,) = pods_of(installed, "busy")
    status = after["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0
    assert status["containerID"] == before["containerID"]


def test_resource_cap_lowers_the_limits_of_a_workload_and_gives_them_back(
    helm: Helm, installed: Lab, harbor: Make
) -> None:
    harbor("capped", replicas=2, limits={"cpu": "200m", "memory": "64Mi"})
    helm.know(helm.workload("capped"))
    action, receipts = helm.act(
        ActionKind.RESOURCE_CAP, helm.workload("capped"), agent="admission", factor=0.6
    )
    assert done(receipts), receipts
    assert {limit_of(p) for p in pods_of(installed, "capped")} == {"120m"}
    assert_joined(helm, installed, action, *[("patch", "pods/resize")] * 2)
    helm.turn_until(
        lambda: {limit_of(p) for p in pods_of(installed, "capped")} == {"200m"}, seconds=40
    )


def test_balloon_lowers_memory_but_never_below_the_floor(
    helm: Helm, installed: Lab, harbor: Make
) -> None:
    memory = {"cpu": "50m", "memory": "256Mi"}
    (pod,) = harbor("roomy", arguments=("--memory-mib=40",), requests=memory, limits=memory)
    name = pod["metadata"]["name"]

    def measured() -> bool:
        snapshot = helm.cluster.observe()
        row = snapshot.find(helm.pod(name))
        return row is not None and int(snapshot.pods.memory_peak_mib[row]) > 30

    helm.know(helm.pod(name))
    helm.turn_until(measured, seconds=60)
    action, receipts = helm.act(
        ActionKind.MEMORY_BALLOON, helm.pod(name), agent="efficiency", factor=0.01
    )
    assert done(receipts), receipts
    snapshot = helm.cluster.last
    assert snapshot is not None
    row = snapshot.find(helm.pod(name))
    assert row is not None
    floor = 1.2 * int(snapshot.pods.memory_peak_mib[row])
    (now,) = pods_of(installed, "roomy")
    got = int(limit_of(now, "memory").removesuffix("Mi"))
    assert floor <= got < 256
    assert now["status"]["qosClass"] == "Guaranteed"
    assert_joined(helm, installed, action, ("patch", "pods/resize"))
    helm.turn_until(
        lambda: limit_of(pods_of(installed, "roomy")[0], "memory") == "256Mi", seconds=40
    )
    assert pods_of(installed, "roomy")[0]["status"]["containerStatuses"][0]["restartCount"] == 0


def test_resize_that_the_node_cannot_give_is_told_as_deferred_and_an_impossible_one_as_refused(
    installed: Lab, harbor: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the hand that every write goes through; no agent would ask for as much."""
    # Whatever the kubelet says in the end: a busy machine may keep it from saying it at once.
    monkeypatch.setattr("pilothouse.act.hand.RESIZE_SECONDS", 60.0)
    pod, _ = harbor("greedy", replicas=2, node="worker-2")
    room = read(installed, "node", "worker-2")["status"]["allocatable"]["memory"]
    whole = mebibytes(room)  # the other one is in the way

    def resized(memory: int) -> Answer:
        step = Step(
            verb=Verb.MEMORY_REQUEST,
            kind="Pod",
            namespace=SPACE,
            name=pod["metadata"]["name"],
            uid=pod["metadata"]["uid"],
            value=memory,
            original=32,
        )
        mark = Mark(action="greedy.0", expires_unix=0)
        signature = Signature(author="greedy", audit_id=f"greedy.0.{memory}", mark=mark)
        person = Requests(from_kubeconfig(installed.layout.kubeconfig))
        try:
            return Hand(person).carry_out(
                step, signature, may_touch=lambda _: "", is_ours=lambda _thing, _step: ""
            )
        finally:
            person.close()

    impossible = resized(2 * whole)
    assert impossible.status is Status.FAILED, impossible
    assert "memory" in impossible.detail
    put_off = resized(whole)
    assert put_off.status is Status.DONE, put_off
    assert f"{NOT_IN_FORCE}deferred: " in put_off.detail
    assert "memory" in put_off.detail


def test_replica_is_kept_off_the_risky_node_where_it_would_have_landed(
    helm: Helm, installed: Lab, harbor: Make, eventually: Make
) -> None:
    full = {"cpu": "350m", "memory": "32Mi"}
    with only(installed, "worker-1", "worker-3"):
        harbor("crowd", replicas=2, requests=full)
    with only(installed, "worker-1", "worker-3"):
        harbor("web", replicas=2)
        harbor("control", replicas=2)
    # worker-2 is the emptiest: a control that is scaled by hand lands on it.
    before = {p["metadata"]["name"] for p in pods_of(installed, "control")}
    installed.kubectl("scale", "deployment", "control", "--replicas=3", "-n", SPACE)
    eventually(lambda: len([p for p in pods_of(installed, "control") if is_ready(p)]) == 3)
    fresh = [p for p in pods_of(installed, "control") if p["metadata"]["name"] not in before]
    assert where(fresh) == ["worker-2"]
    helm.know(helm.workload("web"))
    old = {p["metadata"]["name"] for p in pods_of(installed, "web")}
    action, receipts = helm.act(ActionKind.REPLICATE, helm.workload("web"), avoid="worker-2")
    assert done(receipts), receipts
    assert replicas(installed, "web") == 3
    assert_joined(helm, installed, action, ("patch", "nodes"), ("patch", "deployments/scale"))
    eventually(lambda: len([p for p in pods_of(installed, "web") if is_ready(p)]) == 3)
    added = [p for p in pods_of(installed, "web") if p["metadata"]["name"] not in old]
    assert where(added) in (["worker-1"], ["worker-3"])
    helm.turn_until(lambda: replicas(installed, "web") == 2, seconds=40)
    helm.turn_until(lambda: "pilothouse.dev/avoid" not in taints(installed, "worker-2"))


def test_autoscaled_workload_is_replicated_by_its_minimum(
    helm: Helm, installed: Lab, harbor: Make
) -> None:
    harbor("scaled", replicas=1)
    installed.apply(json.dumps(an_autoscaler("scaled", least=1, most=4)))

    def minimum() -> int:
        return int(read(installed, "hpa", "scaled", "-n", SPACE)["spec"]["minReplicas"])

    def known() -> bool:
        snapshot = helm.cluster.observe()
        row = snapshot.find(helm.workload("scaled"))
        return row is not None and bool(snapshot.workloads.autoscaled[row])

    helm.know(helm.workload("scaled"))
    helm.turn_until(known)
    action, receipts = helm.act(ActionKind.REPLICATE, helm.workload("scaled"))
    assert done(receipts), receipts
    assert minimum() == 2
    assert_joined(helm, installed, action, ("patch", "horizontalpodautoscalers"))
    helm.turn_until(lambda: minimum() == 1, seconds=40)


def test_field_of_another_controller_is_refused_by_name(
    helm: Helm, installed: Lab, harbor: Make
) -> None:
    harbor("owned", replicas=1)
    words = ("--type=merge", "-p", '{"spec":{"replicas":2}}', "--field-manager=argocd-controller")
    installed.kubectl("patch", "deployment", "owned", "-n", SPACE, *words)
    helm.know(helm.workload("owned"))

    def seen() -> bool:
        snapshot = helm.cluster.observe()
        row = snapshot.find(helm.workload("owned"))
        return row is not None and int(snapshot.workloads.replicas_desired[row]) == 2

    helm.turn_until(seen)
    _, receipts = helm.act(ActionKind.REPLICATE, helm.workload("owned"))
    assert [r.status for r in receipts] == [Status.REFUSED]
    assert "argocd-controller" in receipts[0].detail
    assert replicas(installed, "owned") == 2


class Adversary(threading.Thread):
    """Evicts pods of one app, one after the other, and watches the budget all the while."""

    def __init__(self, lab: Lab, app: str) -> None:
        super().__init__(daemon=True)
        self._lab, self._app = lab, app
        self._stopping = threading.Event()
        self.evicted = 0
        self.tried = 0
        self.lowest = 99
        self.surprises: list[str] = []

    def run(self) -> None:
        requests = Requests(from_kubeconfig(self._lab.layout.kubeconfig))
        budget = f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets/{self._app}"
        mine = {"labelSelector": f"app={self._app}"}
        try:
            while not self._stopping.wait(1.2):
                with suppress(ClusterUnreachable):  # a busy machine: it tries again
                    status = requests.get(budget)["status"]
                    spare = status["currentHealthy"] - status["desiredHealthy"]
                    self.lowest = min(self.lowest, spare)
                    pods = requests.every(f"/api/v1/namespaces/{SPACE}/pods", mine)
                    self._evict(requests, random.choice(pods)["metadata"])
        finally:
            requests.close()

    def _evict(self, requests: Requests, meta: dict[str, Any]) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": SPACE},
        }
        path = f"/api/v1/namespaces/{SPACE}/pods/{meta['name']}/eviction"
        self.tried += 1
        try:
            requests.create(path, body, author="adversary", audit_id=f"adversary.{meta['uid']}")
            self.evicted += 1
        except Refusal as refusal:
            if refusal.code not in (404, 409, 429):
                self.surprises.append(str(refusal))

    def stop(self) -> None:
        self._stopping.set()
        self.join(20)


def our_evictions(lab: Lab) -> dict[str, str]:
    """Our evictions by intent, and when each arrived."""
    return {
        event["auditID"]: event["requestReceivedTimestamp"]
        for event in audit(lab)
        if event["user"]["username"] == ACTUATOR
        and place_of(event).get("subresource") == "eviction"
    }


def test_migrate_empties_a_node_and_keeps_the_budget_while_somebody_else_evicts(
    helm: Helm, installed: Lab, harbor: Make, eventually: Make
) -> None:
    before = our_evictions(installed)
    with only(installed, "worker-2"):
        harbor("moved", replicas=3)
        harbor("plain", replicas=1)
    installed.apply(json.dumps(a_budget("moved", 2)))
    budget = ("pdb", "moved", "-n", SPACE)
    eventually(lambda: read(installed, *budget)["status"]["currentHealthy"] == 3)
    helm.know(helm.node("worker-2"), helm.workload("moved"))
    adversary = Adversary(installed, "moved")
    adversary.start()
    try:
        # Once its first eviction is through, the two of us want the same budget all along.
        eventually(lambda: adversary.evicted > 0)
        tried = adversary.tried
        action, receipts = helm.act(ActionKind.MIGRATE, helm.node("worker-2"))
        assert done(receipts), receipts
        moving = lambda: pods_of(installed, "moved") + pods_of(installed, "plain")  # noqa: E731
        helm.turn_until(lambda: "worker-2" not in where(moving()), seconds=90)
    finally:
        adversary.stop()
    assert_joined(helm, installed, action, ("patch", "nodes"), ("patch", "nodes"))
    assert not adversary.surprises
    assert adversary.lowest >= 0, "the budget was broken"
    assert adversary.tried > tried, "the adversary did nothing meanwhile, so nothing was tested"
    intents = {w.intent for t in helm.turns for a in t.turn.decision.actions for w in a.writes}
    ours = our_evictions(installed).keys() - before.keys()
    assert ours
    assert ours <= intents
    helm.turn_until(lambda: "pilothouse.dev/out-of-service" not in taints(installed, "worker-2"))
    # An eviction that took from the budget and failed would hold it for two minutes.
    eventually(lambda: read(installed, *budget)["status"]["disruptionsAllowed"] == 1, seconds=60)


def asleep_at(lab: Lab) -> str:
    """When the last node was said to sleep."""
    notes = {"pilothouse.dev/power": "asleep"}
    return max(
        str(event["requestReceivedTimestamp"])
        for event in audit(lab)
        if event["user"]["username"] == ACTUATOR
        and place_of(event).get("resource") == "nodes"
        and event.get("requestObject", {}).get("metadata", {}).get("annotations") == notes
    )


def test_sleeping_node_is_drained_first_and_woken_by_the_inverse(
    helm: Helm, installed: Lab, harbor: Make
) -> None:
    with only(installed, "worker-3"):
        harbor("lodger", replicas=1)
    helm.know(helm.node("worker-3"), helm.workload("lodger"))
    switched = helm.folder / "switched"

    def power() -> str:
        notes = read(installed, "node", "worker-3")["metadata"].get("annotations", {})
        return str(notes.get("pilothouse.dev/power", ""))

    before = our_evictions(installed)
    action, receipts = helm.act(
        ActionKind.POWER_STATE, helm.node("worker-3"), agent="efficiency", state="asleep"
    )
    assert done(receipts), receipts
    assert_joined(helm, installed, action, ("patch", "nodes"), ("patch", "nodes"))
    assert not switched.exists(), "drained first"
    helm.turn_until(lambda: power() == "asleep")
    assert where(pods_of(installed, "lodger")) != ["worker-3"]
    evictions = our_evictions(installed)
    assert max(evictions[i] for i in evictions.keys() - before.keys()) < asleep_at(installed)
    assert switched.read_text().split("\n")[0] == "sleep worker-3"
    helm.turn_until(lambda: power() == "" and not taints(installed, "worker-3"), seconds=60)
    assert "wake worker-3" in switched.read_text()


def test_queue_holds_new_pods_and_releases_them(
    helm: Helm, installed: Lab, harbor: Make, eventually: Make
) -> None:
    helm.know(helm.space())
    action, receipts = helm.act(
        ActionKind.ADMISSION, helm.space(), agent="admission", decision="queue"
    )
    assert done(receipts), receipts
    assert_joined(helm, installed, action, ("patch", "serviceaccounts"))
    harbor("held", replicas=2, wait=False)
    eventually(lambda: [gated(p) for p in pods_of(installed, "held")] == [True, True], seconds=20)
    helm.turn_until(
        lambda: len([p for p in pods_of(installed, "held") if is_ready(p)]) == 2, seconds=60
    )
    released = [e for e in audit(installed) if e["auditID"].startswith("janitor.release.")]
    assert {e["user"]["username"] for e in released} == {JANITOR}


def test_deprioritized_pods_are_released_after_the_others(
    helm: Helm, installed: Lab, harbor: Make, eventually: Make
) -> None:
    helm.know(helm.space())
    harbor("stuck", wait=False, selector={"no": "such-node"})
    action, receipts = helm.act(
        ActionKind.ADMISSION, helm.space(), agent="admission", decision="deprioritize"
    )
    assert done(receipts), receipts
    assert_joined(helm, installed, action, ("patch", "serviceaccounts"))
    harbor("last", wait=False)
    eventually(lambda: [gated(p) for p in pods_of(installed, "last")] == [True], seconds=20)
    installed.kubectl("delete", "deployment", "stuck", "-n", SPACE)
    eventually(lambda: not pods_of(installed, "stuck"))
    helm.turn_until(lambda: not gated(pods_of(installed, "last")[0]), seconds=40)


def test_reject_refuses_new_pods_until_it_expires(
    helm: Helm, installed: Lab, harbor: Make, eventually: Make
) -> None:
    helm.know(helm.space())
    action, receipts = helm.act(
        ActionKind.ADMISSION, helm.space(), agent="admission", decision="reject"
    )
    assert done(receipts), receipts
    assert_joined(helm, installed, action, ("patch", "serviceaccounts"))
    pod = a_deployment("x", namespace=SPACE)["spec"]["template"]
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": SPACE}}

    def refused() -> bool:
        try:
            installed.apply(json.dumps(bare | {"spec": pod["spec"]}))
        except LabFailed as error:
            return "pilothouse rejects" in str(error)
        installed.kubectl("delete", "pod", "bare", "-n", SPACE, "--grace-period=0", "--force")
        return False

    eventually(refused, seconds=10)
    helm.turn_until(lambda: not refused(), seconds=40)


def a_sysfs(folder: Path) -> Path:
    policy = folder / "devices/system/cpu/cpufreq/policy0"
    policy.mkdir(parents=True)
    for name, value in (
        ("scaling_max_freq", 3_000_000),
        ("cpuinfo_min_freq", 800_000),
        ("cpuinfo_max_freq", 3_200_000),
    ):
        (policy / name).write_text(f"{value}\n")
    return policy


def test_clock_is_lowered_by_the_node_agent_and_comes_back(
    helm: Helm, installed: Lab, tmp_path: Path
) -> None:
    """Against a made-up sysfs: this machine's kernel offers no cpufreq, and the agent says so."""
    account = token_kubeconfig(installed, "pilothouse-node-agent", tmp_path / "account")
    requests = Requests(from_kubeconfig(account))
    policy = a_sysfs(tmp_path / "sys")
    agent = NodeAgent(requests, "worker-1", Clock(tmp_path / "sys", tmp_path / "memory"))
    real = NodeAgent(requests, "worker-2", Clock(tmp_path / "none", tmp_path / "memory2"))
    try:
        helm.know(helm.node("worker-1"))
        action, receipts = helm.act(
            ActionKind.DVFS, helm.node("worker-1"), agent="efficiency", frequency_permille=650
        )
        assert done(receipts), receipts
        agent.look()
        assert int((policy / "scaling_max_freq").read_text()) == 1_950_000
        assert_joined(helm, installed, action, ("patch", "nodes"))
        helm.turn_until(
            lambda: "default" in agent.look(),
            seconds=40,
        )
        assert int((policy / "scaling_max_freq").read_text()) == 3_000_000
        assert real.look().startswith("unavailable")
    finally:
        requests.close()


def test_pods_of_namespaces_that_did_not_opt_in_are_left_alone(
    helm: Helm, installed: Lab, eventually: Make
) -> None:
    installed.apply(
        json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "aloof-env"}})
    )
    installed.apply(json.dumps(a_deployment("theirs", namespace="aloof-env")))
    target = helm.workload("theirs", "aloof-env")
    helm.know(target)
    helm.want(ActionKind.REPLICATE, target)
    decision = helm.turn().turn.decision
    assert not decision.actions
    assert any("did not opt in" in line for line in said(decision))
    installed.kubectl("delete", "namespace", "aloof-env", "--wait=false")


@pytest.fixture(autouse=True)
def nothing_is_left_over(helm: Helm, installed: Lab) -> Iterator[None]:
    """After each test every action of it is taken back."""
    yield
    helm.turn_until(lambda: not helm.runner.loop.ledger.active, seconds=90)
    sleep(helm.runner.settings.guard.dwell_seconds)  # what was given back rests
