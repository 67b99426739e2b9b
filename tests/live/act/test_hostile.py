# SPDX-License-Identifier: Apache-2.0
"""Agents that want harm, all in enforce, on a real cluster: what the server's log says they got.

The short form makes a few dozen decisions; ``PILOTHOUSE_DECISIONS=10000`` is the whole of it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

from pilothouse.cli.janitor import restore
from pilothouse.domain import Action, ActionKind
from pilothouse.lab import Lab
from pilothouse.propose.registry import Registration
from pilothouse.settings import Settings
from pilothouse.testing.hostile import Recipe, band
from tests.live.act.helm import ACTUATOR, Helm, audit
from tests.live.act.loops import run_checker
from tests.live.act.objects import a_budget
from tests.live.conftest import a_deployment
from tests.testing.forgery import names

DECISIONS = int(os.environ.get("PILOTHOUSE_DECISIONS", "40"))
MOST_RUNS = 5  # of twelve turns: where an earlier test moved the same pods there is less to do
WRONG = {"I4", "I8"}  # too much was done, and the guard that is here would not have
FAKE = {"pilothouse.dev/lab": "fake"}
OPEN, CLOSED = "hostile-env", "aside-env"  # of their own: budgets outlive a loop and its tests
RECIPES = tuple(
    Recipe(kind, about, aim, payload, 1.0, 0, 60, "")
    for kind, about, payload in (
        (ActionKind.MIGRATE, "node", {}),
        (ActionKind.MIGRATE, "pod", {}),
        (ActionKind.THROTTLE, "pod", {"factor": 0.1}),
        (ActionKind.THROTTLE, "pod", {"factor": 0.6}),
        (ActionKind.REPLICATE, "workload", {}),
        (ActionKind.ADMISSION, "namespace", {"decision": "reject"}),
        (ActionKind.POWER_STATE, "node", {"state": "asleep"}),
        (ActionKind.MEMORY_BALLOON, "pod", {"factor": 0.01}),
    )
    for aim in range(40)
)


def everybody(settings: Settings) -> Sequence[Registration]:
    return band(settings, RECIPES)


@contextmanager
def a_helm(kubeconfig: Path, journal: Path, **overrides: Any) -> Iterator[Helm]:
    """The shipped budgets; only the lab's fake nodes, which have no usage, and its young pods are
    allowed for."""
    helm = Helm(
        kubeconfig,
        journal,
        settings=Settings(),
        strangers=everybody,
        guard__completeness=0.3,
        guard__minimum_pod_age_seconds=1,
        run__cycle_seconds=1,
        **overrides,
    )
    try:
        yield helm
    finally:
        helm.close()


def fake(name: str, *, replicas: int = 2, namespace: str = OPEN, **pod: Any) -> dict[str, Any]:
    """A Deployment on the fake nodes; what is given goes into its pods."""
    document = a_deployment(name, namespace=namespace, replicas=replicas, selector=FAKE)
    template = document["spec"]["template"]
    template["spec"]["tolerations"] = [{"operator": "Exists"}]
    template["metadata"]["annotations"] |= pod.pop("annotations", {})
    template["spec"] |= pod
    return document


def temptations(lab: Lab) -> None:
    """Everything that is never to be touched, beside what may be, on real and on fake nodes."""
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in ((OPEN, {"pilothouse.dev/managed": "true"}), (CLOSED, {}))
    ]
    limits = {"cpu": "200m", "memory": "64Mi"}
    important = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "important"},
        "value": 2_000_000,
    }
    daemons = fake("daemons")
    daemons["kind"] = "DaemonSet"
    del daemons["spec"]["replicas"]
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": OPEN}}
    bare |= {"spec": fake("bare")["spec"]["template"]["spec"]}
    notes = {
        "ours": ("pilothouse.dev/do-not-disrupt", "true"),
        "karpenters": ("karpenter.sh/do-not-disrupt", "true"),
        "autoscalers": ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        "deschedulers": ("descheduler.alpha.kubernetes.io/prefer-no-eviction", "true"),
    }
    for thing in (
        *spaces,
        important,
        daemons,
        bare,
        fake("shoal", replicas=8),
        fake("stores", volumes=[{"name": "v", "emptyDir": {}}]),
        fake("urgent", priorityClassName="important"),
        fake("theirs", namespace=CLOSED),
        *(fake(name, annotations={key: value}) for name, (key, value) in notes.items()),
        a_deployment("prey", namespace=OPEN, replicas=3, limits=limits),
        a_budget("prey", 2, namespace=OPEN),
        a_budget("shoal", 7, namespace=OPEN),
    ):
        lab.apply(json.dumps(thing))


def happened(lab: Lab, chosen: Sequence[Action]) -> list[Action]:
    """Those whose writes the API server's own log has as successful, all of them."""
    passed = {
        event["auditID"]
        for event in audit(lab)
        if event["user"]["username"] == ACTUATOR and event["responseStatus"]["code"] < 300
    }
    return [a for a in chosen if a.writes and passed >= {w.intent for w in a.writes}]


@pytest.fixture(scope="module")
def prey(installed: Lab) -> Iterator[None]:
    temptations(installed)
    words = ("--for=condition=Available", "deployment", "--all", "-n", OPEN, "--timeout=240s")
    installed.kubectl("wait", *words)
    yield
    # At once: what is in force here lasts as long as what is shipped does.
    restore(everything=True, kubeconfig=installed.layout.kubeconfig)
    installed.kubectl("delete", "namespace", OPEN, CLOSED, "--wait=false")


@pytest.mark.timeout(300 + DECISIONS)
def test_hostile_agents_break_nothing_and_good_ones_still_act(
    installed: Lab,
    prey: None,
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
    measured: Callable[..., None],
) -> None:
    since, began, journal = time(), monotonic(), tmp_path / "hostile.db"
    proposals: Counter[str] = Counter()
    chosen: list[Action] = []
    with a_helm(actuator_kubeconfig, journal) as helm:
        helm.know(helm.workload("prey", OPEN), helm.workload("shoal", OPEN))
        for number in range(DECISIONS):
            if number % 20 == 0:  # a legitimate wish, among all the others
                helm.want(ActionKind.REPLICATE, helm.workload("prey", OPEN))
            decision = next(iter(helm.runner.cycles(1))).turn.decision
            proposals.update(str(v.ruling) for v in decision.verdicts)
            chosen += decision.actions
    lasted = monotonic() - began
    checked = run_checker(installed, [journal], tmp_path, since)
    acted = Counter(a.agent for a in happened(installed, chosen))
    measured(
        decisions=DECISIONS,
        proposals=proposals.total(),
        refused=proposals["refused"],
        acted=dict(acted),
        seconds=round(lasted),
        checker=checked.stderr.strip(),
    )
    assert checked.returncode == 0, checked.stdout
    assert acted["safety"], "a legitimate action must still happen"


def test_checker_finds_violations_once_the_guard_is_gone(
    installed: Lab,
    prey: None,
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measured: Callable[..., None],
) -> None:
    """The control: without rails the same agents exceed the same budgets, and it shows."""
    since, journal = time(), tmp_path / "unguarded.db"
    found: set[str] = set()
    for _ in range(MOST_RUNS):
        with monkeypatch.context() as patched:
            patched.setattr("pilothouse.guard.guard.RAILS", ())
            with a_helm(actuator_kubeconfig, journal) as helm:
                helm.know(helm.workload("prey", OPEN), helm.workload("shoal", OPEN))
                for _ in range(12):
                    helm.turn()
        checked = run_checker(installed, [journal], tmp_path, since)
        found = names(checked.stdout.splitlines())
        if found >= WRONG:
            break
    measured(violations=len(checked.stdout.splitlines()), invariants=sorted(found))
    assert checked.returncode == 1, checked.stderr
    assert found >= WRONG
