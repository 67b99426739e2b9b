# SPDX-License-Identifier: Apache-2.0
"""Two loops and one lease, and pods that come back under the same name.

Short forms; ``PILOTHOUSE_TAKEOVERS=20`` and ``PILOTHOUSE_NAMESAKES=200`` are the whole of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import sleep, time
from typing import Any

import pytest

from pilothouse.act.planner import Planner
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.keys import FENCE
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.domain import Action, ActionKind, Ref, Status
from pilothouse.errors import ClusterUnreachable
from pilothouse.lab import Lab
from pilothouse.testing.livecheck.audit import is_dry_run, signer_of
from tests.live.act.conftest import read
from tests.live.act.helm import ACTUATOR, SPACE, Helm, a_stateful_set, audit, place_of
from tests.live.act.loops import LoopProcess, give_up_lease, residue, run_checker, when
from tests.live.act.objects import a_budget

TAKEOVERS = int(os.environ.get("PILOTHOUSE_TAKEOVERS", "1"))
NAMESAKES = int(os.environ.get("PILOTHOUSE_NAMESAKES", "5"))


def epochs(lab: Lab, since: float) -> list[int]:
    """The epoch in each successful write of the actuator, in the order of the server's log.

    Moving the fence and trying it out prove nothing: these would come in order by themselves.
    """
    found = []
    for event in audit(lab):
        if event["user"]["username"] != ACTUATOR or when(event) < since:
            continue
        if is_dry_run(event) or place_of(event).get("name") == FENCE:
            continue
        signer = signer_of(event)
        if signer and int(event["responseStatus"]["code"]) < 300:
            found.append((when(event), int(signer.partition(":")[0])))
    return [epoch for _, epoch in sorted(found)]


@pytest.mark.timeout(300 + 60 * TAKEOVERS)
def test_leader_that_slept_writes_nothing_after_the_takeover(
    installed: Lab,
    harbor: Callable[..., Any],
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
    eventually: Callable[..., Any],
    measured: Callable[..., None],
) -> None:
    eventually(lambda: not residue(installed), seconds=120)  # or the janitor's work is not ours
    harbor("crew", replicas=2, limits={"cpu": "200m", "memory": "64Mi"})
    since, journals = time(), [tmp_path / "one.db", tmp_path / "two.db"]
    loops = [LoopProcess(actuator_kubeconfig, path, "busy", "crew") for path in journals]
    try:
        for _ in range(TAKEOVERS):
            leader = _leader(installed, loops)
            other = loops[1 - loops.index(leader)]
            seen = len(leader.lines)
            leader.wait_for(lambda line: "receipt" in line, after=seen)
            leader.signal(signal.SIGSTOP)
            mark, stopped = len(other.lines), len(leader.lines)
            other.wait_for(_is_done, after=mark)  # the lease is over, and another has written since
            leader.signal(signal.SIGCONT)
            leader.wait_for(lambda line: "turn" in line, after=stopped)  # and what it tried by then
    finally:
        for loop in loops:
            loop.end()
    order = epochs(installed, since)
    assert len(set(order)) >= 1 + TAKEOVERS, "nobody took over, so nothing was tested"
    assert order == sorted(order), "an older leader wrote after a newer one"
    for path in journals:
        _settle(installed, actuator_kubeconfig, path)
    eventually(lambda: not residue(installed), seconds=120)
    checked = run_checker(installed, journals, tmp_path, since)
    said = checked.stderr.strip()
    measured(takeovers=TAKEOVERS, writes=len(order), epochs=len(set(order)), checker=said)
    assert checked.returncode == 0, checked.stdout
    assert "(0 done)" not in said


def _settle(lab: Lab, kubeconfig: Path, journal: Path) -> None:
    """Both were killed at the end: let each journal's open intents have their answers."""
    give_up_lease(lab)
    loop = LoopProcess(kubeconfig, journal, "watch")
    try:
        loop.wait_for(lambda line: "turn" in line, seconds=120)
    finally:
        loop.end()
        give_up_lease(lab)


def _is_done(line: dict[str, Any]) -> bool:
    return "receipt" in line and line["receipt"][1] == "done"


def _leader(lab: Lab, loops: list[LoopProcess]) -> LoopProcess:
    """Whoever holds the lease, by its process id in the holder's name."""
    for _ in range(300):
        lease = read(lab, "lease", "pilothouse", "-n", "pilothouse-system")
        holder = str(lease["spec"].get("holderIdentity", ""))
        for loop in loops:
            if f"_{loop.child.pid}_" in holder:
                return loop
        sleep(0.2)
    raise AssertionError(f"nobody leads; the lease says {holder}")


@pytest.mark.timeout(300 + 10 * NAMESAKES)
def test_pod_that_came_back_under_its_name_is_never_evicted(
    helm: Helm, installed: Lab, eventually: Callable[..., Any], measured: Callable[..., None]
) -> None:
    installed.apply(json.dumps(a_stateful_set("twin")))
    installed.apply(json.dumps(a_budget("twin", 0)))
    person = Requests(from_kubeconfig(installed.layout.kubeconfig))
    path, target = f"/api/v1/namespaces/{SPACE}/pods/twin-0", helm.pod("twin-0")

    def another_than(before: str) -> str:
        return str(eventually(lambda: _running(person, path, before), every=0.05))

    def decided(number: int, seen: set[int]) -> Action:
        """An eviction of the pod as it is now, once the cache has it."""
        eventually(lambda: _seen(helm, target) not in {0, *seen}, every=0.05)
        seen.add(_seen(helm, target))
        return _eviction(helm, target, f"namesake{since}.{number}")

    def allowed() -> int:
        return int(read(installed, "pdb", "twin", "-n", SPACE)["status"]["disruptionsAllowed"])

    since, seen = int(time()), set[int]()
    helm.turn()  # a new leader reads its predecessors' tickets before anything begins
    try:
        uid = another_than("")
        for number in range(NAMESAKES):
            action = decided(number, seen)
            assert helm.cluster.begin(action) == ""
            person.delete(path, {"gracePeriodSeconds": 0}, audit_id=f"namesake.{number}")
            uid = another_than(uid)
            receipt = helm.cluster.execute(action.writes[0], "safety")
            assert receipt.status is Status.FAILED, receipt
            assert "gone" in receipt.detail or "same name" in receipt.detail
            assert _running(person, path, "") == uid
        # None was even sent: one that failed at its precondition would hold the budget for minutes.
        assert not [
            e
            for e in audit(installed)
            if e["auditID"].startswith(f"namesake{since}.")
            and place_of(e).get("subresource") == "eviction"
        ]
        eventually(lambda: allowed() == 1, seconds=60)
        # The control: the pod that was meant is evicted.
        action = decided(NAMESAKES, seen)
        assert helm.cluster.begin(action) == ""
        receipt = helm.cluster.execute(action.writes[0], "safety")
        assert receipt.status is Status.DONE, receipt
        measured(namesakes=NAMESAKES, wrong_pods=0)
    finally:
        person.close()
        installed.kubectl("delete", "statefulset", "twin", "-n", SPACE)


def _running(person: Requests, path: str, before: str) -> str:
    """The uid of the pod that runs under a name, unless it is the one before."""
    try:
        pod = person.get(path)
    except Refusal as refusal:
        if not refusal.is_missing:
            raise
        return ""
    except ClusterUnreachable:
        return ""  # a busy machine; whoever waits asks again
    uid = str(pod["metadata"]["uid"])
    runs = pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    return uid if runs and uid != before else ""


def _seen(helm: Helm, target: Ref) -> int:
    """Which pod of that name the loop knows; 0: none."""
    snapshot = helm.cluster.observe()
    row = snapshot.find(target)
    return 0 if row is None else int(snapshot.pods.uid[row])


def _eviction(helm: Helm, target: Ref, name: str) -> Action:
    """An action as a decision would make it, for the pod as it was last seen."""
    snapshot = helm.cluster.last
    assert snapshot is not None
    helm.want(ActionKind.MIGRATE, target)
    (wish,) = helm.agents["safety"].wishes
    helm.agents["safety"].wishes = []
    plan = Planner(snapshot, helm.runner.settings).plan(wish(snapshot))
    assert not plan.impossible, plan.impossible
    return Action(
        id=name,
        proposal=0,
        agent="safety",
        kind=ActionKind.MIGRATE,
        target=target,
        writes=tuple(replace(w, intent=f"{name}.{n}") for n, w in enumerate(plan.writes)),
        inverse=(),
        expires_seconds=None,
    )
