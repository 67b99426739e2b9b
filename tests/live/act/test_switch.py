# SPDX-License-Identifier: Apache-2.0
"""Stopping: the switch in the cluster, a wedged loop, a dead loop, a loop without rights."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from pilothouse.cli import main
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.keys import GATES, account_path
from pilothouse.clients.requests import STRATEGIC, Refusal, Requests
from pilothouse.errors import ClusterUnreachable
from pilothouse.lab import Lab
from tests.live.act.conftest import MANIFESTS, pods_of, read
from tests.live.act.helm import ACTUATOR, SPACE, a_stateful_set, audit, fence, place_of
from tests.live.act.loops import LoopProcess, give_up_lease, residue, when
from tests.live.act.objects import a_budget, an_autoscaler, only, taints

Make = Callable[..., Any]
FLIP_SECONDS = 2.0
RESIDUE_SECONDS = 60.0
DEAD_SECONDS = 20.0  # of the janitor in conftest


@pytest.fixture
def start(
    installed: Lab, actuator_kubeconfig: Path, janitor: subprocess.Popen[bytes], tmp_path: Path
) -> Iterator[Callable[..., LoopProcess]]:
    started: list[LoopProcess] = []

    def make(*plan: str, **settings: Any) -> LoopProcess:
        process = LoopProcess(actuator_kubeconfig, tmp_path / "loop.db", *plan, **settings)
        started.append(process)
        return process

    yield make
    for process in started:
        process.end()
    give_up_lease(installed)


@pytest.fixture
def switch(installed: Lab) -> Iterator[Callable[[bool], float]]:
    """Flips the cluster's switch as a person does; returns when."""

    def flip(acting: bool) -> float:
        command = ["resume"] if acting else ["halt", "--reason", "a test says so"]
        assert main([*command, "--kubeconfig", str(installed.layout.kubeconfig)]) == 0
        return datetime.now(UTC).timestamp()

    yield flip
    flip(True)


class Rogue(threading.Thread):
    """Somebody with the actuator's token who writes one kind of thing 20 times a second."""

    def __init__(self, access: Any, name: str, write: Callable[[Requests, int], Any]) -> None:
        super().__init__(daemon=True, name=name)
        self._requests = Requests(access)
        self._write = write
        self._stopping = threading.Event()
        self.successes: list[float] = []
        self.refusals: list[tuple[float, int, str]] = []

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(0.05):
            number += 1
            try:
                self._write(self._requests, number)
                self.successes.append(datetime.now(UTC).timestamp())
            except Refusal as refusal:
                at = datetime.now(UTC).timestamp()
                self.refusals.append((at, refusal.code, str(refusal)))
            except ClusterUnreachable:
                continue  # a busy machine; whether it was done the server's log knows

    def stop(self) -> None:
        self._stopping.set()
        self.join(20)
        self._requests.close()


def granted_writes() -> set[str]:
    """What the actuator's rights let it write, by resource, from the checked-in list."""
    rows = (MANIFESTS / "actuator-can-i.txt").read_text().splitlines()
    found = set()
    for row in rows:
        resource, verbs = row.split()[0], row.rpartition("[")[2].rstrip("]").split()
        if not resource.startswith(("[", "self")) and set(verbs) - {"get", "list", "watch"}:
            group, _, subresource = resource.partition("/")
            parts = (group.partition(".")[0], subresource)
            found.add("/".join(part for part in parts if part))
    return found


def test_no_write_of_a_rogue_client_succeeds_after_the_flip(
    installed: Lab,
    harbor: Make,
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    switch: Callable[[bool], float],
    eventually: Make,
    measured: Callable[..., None],
) -> None:
    (pod,) = harbor("target", replicas=1, limits={"cpu": "200m", "memory": "64Mi"})
    installed.apply(json.dumps(a_stateful_set("still")))
    installed.apply(json.dumps(an_autoscaler("target", least=1, most=9)))
    name = pod["metadata"]["name"]
    replica_set = pod["metadata"]["ownerReferences"][0]["name"]
    author = f"pilothouse:{fence(installed)}:rogue"
    core, apps = f"/api/v1/namespaces/{SPACE}", f"/apis/apps/v1/namespaces/{SPACE}"
    scaler = f"/apis/autoscaling/v2/namespaces/{SPACE}/horizontalpodautoscalers/target"

    def patch(path: str, body: Callable[[int], Any], kind: str = "") -> Callable[..., Any]:
        def write(requests: Requests, n: int) -> Any:
            more = {"kind": kind} if kind else {}
            return requests.patch(path, body(n), author=author, audit_id=f"rogue.{n}", **more)

        return write

    def create(path: str, body: Callable[[int], Any]) -> Callable[..., Any]:
        return lambda requests, n: requests.create(
            path, body(n), author=author, audit_id=f"rogue.{n}"
        )

    def container(n: int) -> Any:
        return [{"name": "workload", "resources": {"limits": {"cpu": f"{190 + n % 10}m"}}}]

    def a_ticket(n: int) -> Any:
        moment = "2026-01-01T00:00:00Z"
        spec = {"action": f"r.{n}", "agent": "x", "kind": "x", "target": "x", "record": "x"}
        spec |= {"made": moment, "madeSeconds": 0, "keep": moment}
        meta = {"name": f"rogue-{n}", "namespace": "pilothouse-system"}
        return {
            "apiVersion": "pilothouse.dev/v1alpha1",
            "kind": "Ticket",
            "metadata": meta,
            "spec": spec,
        }

    def an_eviction(n: int) -> Any:
        meta = {"name": name, "namespace": SPACE}
        options = {"dryRun": ["All"]}
        return {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": meta,
            "deleteOptions": options,
        }

    def an_event(n: int) -> Any:
        involved = {"kind": "Pod", "namespace": SPACE, "name": name}
        meta = {"generateName": "rogue-", "namespace": SPACE}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": meta,
            "involvedObject": involved,
            "reason": "Test",
        }

    def renew(requests: Requests, n: int) -> Any:
        path = "/apis/coordination.k8s.io/v1/namespaces/pilothouse-system/leases/pilothouse"
        current = requests.get(path)
        return requests._ask(
            "PUT",
            path,
            content=json.dumps(current).encode(),
            headers={"Content-Type": "application/json", "Audit-ID": f"rogue.lease.{n}"},
        )

    access = from_kubeconfig(actuator_kubeconfig)
    note = "pilothouse.dev/power"
    gate = "gate.pilothouse.dev/elsewhere"
    tickets = "/apis/pilothouse.dev/v1alpha1/namespaces/pilothouse-system/tickets"
    stopped = {
        "nodes": patch(
            "/api/v1/nodes/worker-1", lambda n: {"metadata": {"annotations": {note: f"x{n}"}}}
        ),
        "deployments/scale": patch(
            f"{apps}/deployments/target/scale", lambda n: {"spec": {"replicas": 1}}
        ),
        "statefulsets/scale": patch(
            f"{apps}/statefulsets/still/scale", lambda n: {"spec": {"replicas": 1}}
        ),
        "replicasets/scale": patch(
            f"{apps}/replicasets/{replica_set}/scale", lambda n: {"spec": {"replicas": 1}}
        ),
        "horizontalpodautoscalers": patch(scaler, lambda n: {"spec": {"minReplicas": 1 + n % 2}}),
        "serviceaccounts": patch(
            account_path(GATES),
            lambda n: {"metadata": {"annotations": {gate: ["queue", "reject"][n % 2]}}},
        ),
        "pods/resize": patch(
            f"{core}/pods/{name}/resize",
            lambda n: {"spec": {"containers": container(n)}},
            STRATEGIC,
        ),
        "pods/eviction": create(f"{core}/pods/{name}/eviction", an_eviction),
        "tickets": create(tickets, a_ticket),
    }
    passing = {"events": create(f"{core}/events", an_event), "leases": renew}
    assert (stopped | passing).keys() == granted_writes(), "the rights have changed"
    rogues = [Rogue(access, kind, write) for kind, write in (stopped | passing).items()]
    for rogue in rogues:
        rogue.start()
    eventually(lambda: all(len(rogue.successes) > 3 for rogue in rogues))
    flipped = switch(False)
    sleep(5)
    for rogue in rogues:
        rogue.stop()
    for rogue in rogues:
        before = [at for at in rogue.successes if at < flipped]
        late = [at - flipped for at in rogue.successes if at > flipped + FLIP_SECONDS]
        assert before, (rogue.name, rogue.refusals[:1])
        if rogue.name in passing:
            assert late, f"{rogue.name} must go on"
        else:
            assert not late, (rogue.name, late[:3])
            assert "switched off" in rogue.refusals[-1][2]
    late_writes = writes_since(installed, flipped + FLIP_SECONDS)
    assert [what for what, code in late_writes if code < 300] == []
    latest = max(at for r in rogues if r.name in stopped for at in r.successes)
    measured(last_success_after_flip_seconds=round(latest - flipped, 2), kinds=len(stopped))
    installed.kubectl("annotate", "node", "worker-1", f"{note}-")
    installed.kubectl("delete", "tickets", "--all", "-n", "pilothouse-system", "--wait=false")
    account = ("serviceaccount", GATES, "-n", "pilothouse-system")
    installed.kubectl("annotate", *account, f"{gate}-")


LASTING = {"guard__ttl_seconds": {"migrate": 600}}  # nothing expires: only a stop takes it back
BRIEF = {"guard__ttl_seconds": {"migrate": 15}}  # it expires soon, and nothing else takes it back


def begin_drain(
    installed: Lab, harbor: Make, start: Callable[..., LoopProcess], **settings: Any
) -> LoopProcess:
    """A drain that cannot finish: its budget lets nobody go."""
    with only(installed, "worker-2"):
        harbor("held", replicas=2)
    installed.apply(json.dumps(a_budget("held", 2)))
    loop = start("drain", "worker-2", **settings)
    loop.wait_for(lambda line: "receipt" in line and "disruption budget" in line["receipt"][2])
    assert "pilothouse.dev/out-of-service" in taints(installed, "worker-2")
    return loop


def writes_since(lab: Lab, moment: float) -> list[tuple[str, int]]:
    """What the actuator wrote, its own Lease and Events aside."""
    return [
        (f"{e['verb']} {place_of(e).get('resource')}", int(e["responseStatus"]["code"]))
        for e in audit(lab)
        if e["user"]["username"] == ACTUATOR
        and e["verb"] not in ("get", "list", "watch")
        and place_of(e).get("resource") not in ("leases", "events")
        and when(e) > moment
    ]


def test_stopped_loop_finds_everything_refused_and_nothing_is_left_over(
    installed: Lab,
    harbor: Make,
    start: Callable[..., LoopProcess],
    switch: Callable[[bool], float],
    eventually: Make,
    measured: Callable[..., None],
) -> None:
    loop = begin_drain(installed, harbor, start, **LASTING)
    loop.signal(signal.SIGSTOP)
    flipped = switch(False)
    began = monotonic()
    sleep(FLIP_SECONDS)  # by then the server has to know
    loop.signal(signal.SIGCONT)
    eventually(lambda: not residue(installed), seconds=RESIDUE_SECONDS)
    measured(residue_gone_after_flip_seconds=round(monotonic() - began, 1))
    seen = len(loop.lines)
    eventually(lambda: len(loop.lines) > seen + 3)
    assert [code for _, code in writes_since(installed, flipped) if code < 300] == []


def test_killed_loop_leaves_nothing_behind(
    installed: Lab,
    harbor: Make,
    start: Callable[..., LoopProcess],
    eventually: Make,
    measured: Callable[..., None],
) -> None:
    loop = begin_drain(installed, harbor, start, **LASTING)
    loop.signal(signal.SIGKILL)
    began = monotonic()
    eventually(lambda: not residue(installed), seconds=DEAD_SECONDS + RESIDUE_SECONDS)
    measured(residue_gone_after_kill_seconds=round(monotonic() - began, 1))

    def phases() -> set[str]:
        written = [t for t in tickets(installed) if t["spec"].get("undo")]
        return {t.get("status", {}).get("phase", "") for t in written}

    assert phases()
    eventually(lambda: phases() <= {"Restored", "Released"})  # said after it was done


def tickets(lab: Lab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read(lab, "tickets", "-n", "pilothouse-system")["items"]
    return found


def test_restore_all_takes_back_what_is_in_force(
    installed: Lab,
    harbor: Make,
    start: Callable[..., LoopProcess],
    janitor_kubeconfig: Path,
    eventually: Make,
) -> None:
    (pod,) = harbor("slow", limits={"cpu": "200m", "memory": "64Mi"})
    loop = start("throttle", pod["metadata"]["name"])
    loop.wait_for(lambda line: "receipt" in line and line["receipt"][1] == "done")
    loop.signal(signal.SIGKILL)
    assert main(["restore", "--all", "--kubeconfig", str(janitor_kubeconfig)]) == 0
    (now,) = pods_of(installed, "slow")
    assert now["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "200m"
    assert residue(installed) == []


def test_loop_without_its_role_binding_is_refused_and_goes_on(
    installed: Lab, harbor: Make, start: Callable[..., LoopProcess], eventually: Make
) -> None:
    loop = begin_drain(installed, harbor, start, **BRIEF)
    installed.kubectl("delete", "clusterrolebinding", "pilothouse-actuator")
    try:
        cut = datetime.now(UTC).timestamp()
        eventually(lambda: not residue(installed), seconds=DEAD_SECONDS + RESIDUE_SECONDS + 60)
        assert [
            c for what, c in writes_since(installed, cut + 1) if c < 300 and "tickets" not in what
        ] == []
        assert loop.child.poll() is None, "it must not crash"
    finally:
        installed.apply((MANIFESTS / "actuator-rbac.yaml").read_text())
