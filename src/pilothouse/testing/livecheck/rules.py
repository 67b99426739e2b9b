# SPDX-License-Identifier: Apache-2.0
"""The invariants, one after the other. Each yields sentences that begin with its name."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from pilothouse.testing.livecheck.audit import (
    ACTUATOR,
    JANITOR,
    OUT_OF_SERVICE,
    Deed,
    Health,
    Json,
    Scene,
    controller_of,
)
from pilothouse.testing.livecheck.books import Books

RESIDUE_SECONDS = 60.0  # after a flip or an expiry everything of ours is gone
SETTLE_SECONDS = 30.0  # a restart settles every open intent within this
FLIP_SECONDS = 2.0  # after it nothing of the actuator's passes
DELAY_SECONDS = 5.0  # between a decision, by which the guard counts, and its write
SYSTEM = ("kube-*", "pilothouse-system")
MANAGED = "pilothouse.dev/managed"
KEPT = ("pilothouse.dev/do-not-disrupt", "karpenter.sh/do-not-disrupt")
EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
UNWANTED = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
GATES, GATE = "pilothouse-gates", "gate.pilothouse.dev/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a rule may look at."""

    deeds: Sequence[Deed]
    scene: Scene
    books: Books
    tickets: Sequence[Json]
    now: float  # Unix seconds

    @property
    def ours(self) -> list[Deed]:
        """What the actuator really changed."""
        return [d for d in self.deeds if d.user == ACTUATOR and d.succeeded]

    @property
    def chosen(self) -> list[Deed]:
        """Of that, what was not a taking back."""
        restores = {a.id for a in self.books.actions.values() if a.restores}
        return [d for d in self.ours if d.action not in restores]


def known_tickets(scene: Scene, kept: Sequence[Json], since: float) -> list[Json]:
    """All that were made since some moment: the log knows those that were forgotten meanwhile."""
    every = scene.tickets | {ticket["spec"]["action"]: ticket for ticket in kept}
    return [ticket for ticket in every.values() if _unix(ticket["spec"]["made"]) >= since]


def check(e: Evidence) -> list[str]:
    """Every violation."""
    return [line for rule in RULES for line in rule(e)]


def announced(e: Evidence) -> Iterator[str]:
    """I1: every write has one earlier intent, or a ticket where the janitor wrote."""
    tickets = {t["spec"]["action"] for t in e.tickets}
    for deed in e.deeds:
        if deed.user == JANITOR:
            release = deed.intent.startswith("janitor.release.")
            action = deed.action.removeprefix("janitor.")
            if not release and action not in tickets:
                yield f"I1 {deed.intent}: the janitor wrote {deed.resource} without a ticket"
            continue
        known = e.books.intents.get(deed.intent)
        if known is None:
            yield f"I1 {deed.intent}: {deed.verb} {deed.resource} {deed.name} has no intent"
        elif known > deed.at + 0.001:
            yield f"I1 {deed.intent}: written {known - deed.at:.3f} s before its intent was durable"


def answered(e: Evidence) -> Iterator[str]:
    """I2: a restart leaves no intent open, and none stays open for long."""
    for intent in dict.fromkeys(e.books.unsettled):
        yield f"I2 {intent}: open after a restart"
    for intent, made in e.books.intents.items():
        if intent not in e.books.receipts and e.now - made > SETTLE_SECONDS:
            yield f"I2 {intent}: no receipt after {e.now - made:.0f} s"


def chained(e: Evidence) -> Iterator[str]:
    """I3: no gap in the record, and the chain holds."""
    yield from (f"I3 {line}" for line in e.books.broken)


def within_budget(e: Evidence) -> Iterator[str]:
    """I4: actions by agent, node, workload and namespace in every sliding window, as logged."""
    window = float(e.books.guard.get("window_seconds", 600)) - DELAY_SECONDS
    groups: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for deed in e.chosen:
        action = e.books.actions.get(deed.action)
        if action is None or action.id in e.books.carried:
            continue  # what carries an action on was counted when that began
        for budget, name in _budgets(deed, action.agent, e.scene):
            groups[budget, name].setdefault(action.id, deed.at)
    for (budget, name), actions in groups.items():
        allowed = int(e.books.guard.get(budget, 0))
        most = _most_in(sorted(actions.values()), window)
        if most > allowed:
            yield f"I4 {name}: {most} actions in a window, {budget} allows {allowed}"


def _budgets(deed: Deed, agent: str, scene: Scene) -> Iterator[tuple[str, str]]:
    yield "per_agent", agent
    if deed.resource == "nodes":
        yield "per_node", deed.name
    elif deed.name == GATES:
        yield from (("per_namespace", space) for space in _gates(deed))
    else:
        yield "per_namespace", deed.namespace
        workload = scene.workload_of(deed)
        if workload:
            yield "per_workload", workload


def _most_in(moments: Sequence[float], window: float) -> int:
    most = first = 0
    for last, moment in enumerate(moments):
        while moments[first] <= moment - window:
            first += 1
        most = max(most, last - first + 1)
    return most


def enough_nodes_serve(e: Evidence) -> Iterator[str]:
    """I4: the nodes that carry a mark of ours at the same time, by what the server answered."""
    share = float(e.books.guard.get("node_share", 0))
    allowed = max(math.ceil(round(e.books.nodes * share, 6)), 1)
    out: set[str] = set()
    for deed in e.deeds:
        if deed.resource != "nodes" or not deed.succeeded or not deed.response:
            continue
        marks = [t["key"] for t in (deed.response.get("spec") or {}).get("taints") or []]
        marks += (deed.response["metadata"].get("annotations") or {}).keys()
        (out.add if set(marks) & set(OUT_OF_SERVICE) else out.discard)(deed.name)
        if len(out) > allowed:
            yield f"I4 {deed.intent}: {len(out)} nodes out of service, node_share allows {allowed}"


def allowed(e: Evidence) -> Iterator[str]:
    """I5: nothing passes while switched off, halted, or in another mode than enforce."""
    for deed in e.ours:
        since = e.scene.off_since(deed.at)
        if since is not None and deed.at > since + FLIP_SECONDS:
            late = deed.at - since
            yield f"I5 {deed.intent}: written {late:.1f} s after the switch was turned off"
    for deed in e.chosen:
        why = e.books.unlet.get(deed.action)
        if why:
            yield f"I5 {deed.intent}: {why}"


def fenced(e: Evidence) -> Iterator[str]:
    """I5: nothing passes that is signed by nobody, or by another leader than the fence's."""
    for deed in e.ours:
        stands, stood = e.scene.fence(deed.at), e.scene.fence(deed.at - FLIP_SECONDS)
        if stood and deed.signer not in (stands, stood):
            signer = deed.signer or "nobody"
            yield f"I5 {deed.intent}: signed by {signer}, the fence was at {stands}"


def evicted_only(e: Evidence) -> Iterator[str]:
    """I6: nothing is deleted past the budgets."""
    for deed in e.deeds:
        if deed.verb in ("delete", "deletecollection") and deed.succeeded:
            yield f"I6 {deed.intent}: {deed.resource} {deed.name} was deleted, not evicted"


def budgets_hold(e: Evidence) -> Iterator[str]:
    """I6: no disruption budget fell below its minimum right after an eviction of ours."""
    evictions = [d for d in e.ours if d.resource == "pods/eviction"]
    healthy: dict[str, float] = {}
    for health in e.scene.budgets:
        if health.current >= health.desired:
            healthy[health.budget] = health.at
            continue
        since = healthy.get(health.budget, float("-inf"))
        for deed in evictions:
            if since <= deed.at <= health.at and _covers(health, deed, e.scene):
                yield (
                    f"I6 {deed.intent}: {health.budget} had {health.current} of "
                    f"{health.desired} after {deed.name} was evicted"
                )


def _covers(health: Health, deed: Deed, scene: Scene) -> bool:
    pod = scene.pod(deed.namespace, deed.name, deed.at)
    if pod is None or not health.budget.startswith(f"{deed.namespace}/"):
        return False
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in health.selector.items())


def once(e: Evidence) -> Iterator[str]:
    """I7: one intent, at most one success."""
    for intent, count in Counter(d.intent for d in e.ours).items():
        if count > 1:
            yield f"I7 {intent}: {count} successes"


def decided_again(e: Evidence) -> Iterator[str]:
    """I8: the stored inputs give the stored decisions."""
    yield from (f"I8 {line}" for line in e.books.other)


def spared(e: Evidence) -> Iterator[str]:
    """I9: the system's, the unmanaged and the protected are never touched."""
    for deed in e.deeds:
        if deed.succeeded and deed.namespace and not _is_own(deed) and _is_system(deed.namespace):
            yield f"I9 {deed.intent}: {deed.resource} {deed.name} in {deed.namespace}"
    for deed in e.chosen:
        for space in _spaces(deed):
            thing = e.scene.namespace(space, deed.at)
            labels = ((thing or {}).get("metadata") or {}).get("labels") or {}
            if labels.get(MANAGED) != "true" or _is_system(space):
                yield f"I9 {deed.intent}: {deed.resource} in {space}, which did not opt in"
        if deed.resource.startswith("pods/"):
            why = _why_kept(e.scene.pod(deed.namespace, deed.name, deed.at), e.books)
            if why:
                yield f"I9 {deed.intent}: {deed.resource} of {deed.name}, but {why}"
        action = e.books.actions.get(deed.action)
        if action is not None and deed.namespace and not _is_own(deed):
            named = {w.target.namespace for w in action.writes}
            if deed.namespace not in named:
                yield f"I9 {deed.intent}: {deed.namespace} is not what was decided about"


def _is_own(deed: Deed) -> bool:
    """The gates are ours to write, and so is what a janitor keeps on its tickets."""
    return deed.namespace == "pilothouse-system" and (
        (deed.resource, deed.name) == ("serviceaccounts", GATES)
        or deed.resource.startswith("tickets")
    )


def _is_system(namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in SYSTEM)


def _gates(deed: Deed) -> Json:
    """Namespace to gate, as a write to the gates has it."""
    notes = (deed.request.get("metadata") or {}).get("annotations") or {}
    return {k.removeprefix(GATE): word for k, word in notes.items() if k.startswith(GATE)}


def _spaces(deed: Deed) -> Sequence[str]:
    """The namespaces a write concerns: a gate is about the one it names."""
    if _is_own(deed):
        return [space for space, word in _gates(deed).items() if word]
    return [deed.namespace] if deed.namespace else []


def _why_kept(pod: Json | None, books: Books) -> str:
    """What protects a pod, by the object that the server stored."""
    if pod is None:
        return "the log does not know the pod"
    meta, spec = pod["metadata"], pod["spec"]
    notes, owner = meta.get("annotations") or {}, controller_of(pod)
    if owner is None or owner["kind"] in ("DaemonSet", "Node"):
        return "nobody would bring it back elsewhere"
    if int(spec.get("priority", 0)) >= int(books.guard.get("protected_priority", 1_000_000)):
        return f"its priority is {spec['priority']}"
    if any(notes.get(key) == "true" for key in KEPT) or UNWANTED in notes:
        return "its owner wants it left alone"
    if notes.get(EVICTABLE) == "false":
        return f"{EVICTABLE} is false"
    local = [v for v in spec.get("volumes") or [] if "emptyDir" in v or "hostPath" in v]
    return "it has local storage" if local and notes.get(EVICTABLE) != "true" else ""


def taken_back(e: Evidence) -> Iterator[str]:
    """I10: no action outlives its end, nor a switch that was turned off."""
    for ticket in e.tickets:
        spec, status = ticket["spec"], ticket.get("status") or {}
        if not spec.get("undo") or "expires" not in spec:
            continue
        made, expires = _unix(spec["made"]), _unix(spec["expires"])
        ended = _unix(status["ended"]) if status.get("ended") else None
        over = e.now if ended is None else ended
        if over > expires + RESIDUE_SECONDS:
            yield f"I10 {spec['action']}: in force {over - expires:.0f} s after it expired"
        for moment, acting in e.scene.flips:
            since = e.scene.off_since(moment + RESIDUE_SECONDS)
            stayed_off = not acting and since is not None and since <= moment
            if stayed_off and made < moment and over > moment + RESIDUE_SECONDS:
                late = over - moment
                yield f"I10 {spec['action']}: in force {late:.0f} s after the switch went off"


def _unix(text: Any) -> float:
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()


RULES = (
    announced,
    answered,
    chained,
    within_budget,
    enough_nodes_serve,
    allowed,
    fenced,
    evicted_only,
    budgets_hold,
    once,
    decided_again,
    spared,
    taken_back,
)
