# SPDX-License-Identifier: Apache-2.0
"""A loop on the lab that wants what a test tells it to want; everything else is the real thing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from pilothouse.cli.enforce import Acting, enforcing
from pilothouse.cli.live import live_settings, open_cluster
from pilothouse.domain import (
    Action,
    ActionKind,
    Decision,
    Forecast,
    Proposal,
    Receipt,
    Ref,
    Snapshot,
    Status,
)
from pilothouse.errors import UserError
from pilothouse.journal import Journal
from pilothouse.lab import Lab
from pilothouse.live import ActingCluster
from pilothouse.propose.registry import Janitor, Registration
from pilothouse.run import Report, Runner
from pilothouse.settings import Settings
from pilothouse.settings.file import load, with_overrides
from tests.live.conftest import a_deployment

SHORT = Path(__file__).with_name("short.yaml")
SPACE = "act-env"
ACTUATOR = "system:serviceaccount:pilothouse-system:pilothouse-actuator"
JANITOR = "system:serviceaccount:pilothouse-system:pilothouse-janitor"


@dataclass(slots=True)
class Scripted:
    """An agent that wants what it is told, once."""

    name: str
    wishes: list[Callable[[Snapshot], Proposal]] = field(default_factory=list)
    title: str = "Scripted"

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        wishes, self.wishes = self.wishes, []
        return [wish(snapshot) for wish in wishes]


RANKS = {"safety": 10, "admission": 20, "efficiency": 30}


class Helm:
    """One loop, turned by hand."""

    def __init__(
        self,
        kubeconfig: Path,
        journal: Path,
        *,
        settings: Settings | None = None,
        journal_type: type[Journal] = Journal,
        strangers: Callable[[Settings], Sequence[Registration]] = lambda _settings: (),
        **overrides: Any,
    ) -> None:
        settings = settings or load(SHORT)
        if overrides:
            settings = with_overrides(
                settings, {key.replace("__", "."): value for key, value in overrides.items()}
            )
        self.acting = Acting(settings)
        name, cluster = open_cluster(
            kubeconfig, namespaces="*", prometheus=None, acting=self.acting
        )
        assert isinstance(cluster, ActingCluster)
        self.cluster = cluster
        self.name = name
        settings = enforcing(live_settings(settings, name), ",".join(RANKS))
        others = strangers(settings)
        if others:  # everybody enforces, which no real cluster would be asked to bear
            settings = with_overrides(settings, {"modes.default": "enforce"})
        self.acting.wait_to_lead(print)
        try:
            self.acting.require_janitor()
        except UserError:
            cluster.close()  # or the lease would be held by nobody who acts
            raise
        self.agents = {agent: Scripted(agent) for agent in RANKS}
        registered = [Registration(a, RANKS[n], a.title) for n, a in self.agents.items()]
        self.journal = journal_type.open(journal, settings=settings.journal)
        self.runner = Runner(
            settings=settings,
            journal=self.journal,
            cluster=cluster,
            agents=[Registration(Janitor(), 0, "Janitor"), *registered, *others],
        )
        self.turns: list[Report] = []
        self.folder = journal.parent

    def want(
        self,
        kind: ActionKind,
        target: Ref,
        *,
        agent: str = "safety",
        **payload: str | int | float,
    ) -> None:
        def wish(snapshot: Snapshot) -> Proposal:
            return Proposal(
                agent=agent,
                label=f"Scripted:{kind.value}",
                kind=kind,
                target=target,
                payload=dict(payload),
                score=0.9,
                priority=0,
                evidence=(),
                reason=f"a test wants {kind.value} of {target.short}",
                expires_seconds=snapshot.taken_seconds + 60,
            )

        self.agents[agent].wishes.append(wish)

    def turn(self) -> Report:
        report = next(iter(self.runner.cycles(1)))
        self.turns.append(report)
        return report

    def act(
        self, kind: ActionKind, target: Ref, *, agent: str = "safety", **payload: Any
    ) -> tuple[Action, tuple[Receipt, ...]]:
        """Ask for one action and expect it to be chosen; returns it with its receipts."""
        self.know(target)  # usage that was fresh a while ago may be too old for the guard by now
        self.want(kind, target, agent=agent, **payload)
        report = self.turn()
        actions = [a for a in report.turn.decision.actions if a.kind is kind]
        assert actions, said(report.turn.decision)
        mine = {w.intent for w in actions[0].writes}
        return actions[0], tuple(r for r in report.turn.receipts if r.intent in mine)

    def turn_until(self, look: Callable[[], Any], seconds: float = 60.0) -> Any:
        deadline = monotonic() + seconds
        while not (found := look()):
            assert monotonic() < deadline, (found, self.story())
            self.turn()
            sleep(0.3)
        return found

    def story(self) -> list[str]:
        """What was sent and answered so far, for a failing test's message."""
        return [
            f"{r.intent} {r.status.value}: {r.detail}"
            for report in self.turns
            for r in report.turn.receipts
        ]

    def know(self, *targets: Ref, seconds: float = 120.0) -> None:
        """Look until these objects are known and every node's usage is fresh."""
        deadline = monotonic() + seconds
        while True:
            snapshot = self.cluster.observe()
            known = all(snapshot.find(target) is not None for target in targets)
            named = zip(snapshot.nodes.names, snapshot.nodes.age_seconds.tolist(), strict=True)
            ages = {name: age for name, age in named if name.startswith("worker-")}
            if known and all(age < 40 for age in ages.values()):
                return
            assert monotonic() < deadline, (targets, ages, snapshot.sources)
            sleep(0.3)

    def workload(self, name: str, namespace: str = SPACE) -> Ref:
        return Ref(self.name, "workload", namespace, name)

    def pod(self, name: str, namespace: str = SPACE) -> Ref:
        return Ref(self.name, "pod", namespace, name)

    def node(self, name: str) -> Ref:
        return Ref(self.name, "node", "", name)

    def space(self, name: str = SPACE) -> Ref:
        return Ref(self.name, "namespace", "", name)

    def close(self) -> None:
        self.journal.close()
        self.cluster.close()


def said(decision: Decision) -> list[str]:
    """Every verdict, for a failing test's message."""
    return [
        f"{p.agent} {p.kind.value} {p.target.short}: {v.ruling.value} {v.rule} {v.sentence}"
        for p, v in zip(decision.proposals, decision.verdicts, strict=True)
    ]


def done(receipts: Sequence[Receipt]) -> bool:
    return bool(receipts) and all(r.status is Status.DONE for r in receipts)


def audit_files(lab: Lab) -> list[Path]:
    """The log and what was rotated away from it, oldest first."""
    return sorted(lab.layout.audit_log.parent.glob(f"{lab.layout.audit_log.stem}*"))


def audit(lab: Lab) -> list[dict[str, Any]]:
    texts = [file.read_text() for file in audit_files(lab)]
    # What comes after the last line end is being written just now.
    lines = [line for text in texts for line in text.split("\n")[:-1]]
    return [json.loads(line) for line in lines if line]


def place_of(event: dict[str, Any]) -> dict[str, Any]:
    """What a request was about; some are about no object at all."""
    return event.get("objectRef") or {}


def witnessed(lab: Lab, intent: str) -> list[tuple[str, str, str, int]]:
    """(user, verb, resource, code) of every request that carried this intent."""
    found = []
    for event in audit(lab):
        if event["auditID"] == intent:
            place = place_of(event)
            parts = (place.get("resource", ""), place.get("subresource", ""))
            what = "/".join(part for part in parts if part)
            code = int(event.get("responseStatus", {}).get("code", 0))
            found.append((event["user"]["username"], event["verb"], what, code))
    return found


def pods_of(lab: Lab, name: str) -> list[dict[str, Any]]:
    found = lab.kubectl("get", "pods", "-n", SPACE, "-l", f"app={name}", "-o", "json")
    pods: list[dict[str, Any]] = json.loads(found)["items"]
    return [p for p in pods if not p["metadata"].get("deletionTimestamp")]


def read(lab: Lab, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", *words, "-o", "json"))
    return found


def notes(lab: Lab, account: str) -> dict[str, str]:
    """The annotations of one of our own accounts."""
    meta = read(lab, "serviceaccount", account, "-n", "pilothouse-system")["metadata"]
    found: dict[str, str] = meta.get("annotations") or {}
    return found


def fence(lab: Lab) -> str:
    """The leader whose writes pass, as it signs: "7:host_1_ab"; empty before anybody led."""
    found = notes(lab, "pilothouse-fence")
    words = [found.get(f"pilothouse.dev/{key}", "") for key in ("epoch", "holder")]
    return ":".join(words) if all(words) else ""


def a_stateful_set(name: str) -> dict[str, Any]:
    """One pod that always comes back under its name, on the fake nodes, where that is quick."""
    document = a_deployment(name, namespace=SPACE, selector={"pilothouse.dev/lab": "fake"})
    document["kind"] = "StatefulSet"
    document["spec"]["serviceName"] = name
    document["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    return document
