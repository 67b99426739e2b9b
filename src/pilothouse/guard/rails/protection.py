# SPDX-License-Identifier: Apache-2.0
"""What is never touched: protected and unmanaged namespaces, high priorities, pods that stay.

A drain leaves pods that cannot be evicted where they are. A node whose drain would evict a
protected pod is refused; the planner then has to move the others one by one.
"""

from __future__ import annotations

from pilothouse.domain import Gate, Ref, Verb, Verdict
from pilothouse.guard.case import Case, refuse


def target_is_open(case: Case) -> Verdict | None:
    """Every namespace, workload and pod that is written to must be ours to touch."""
    for write in case.plan.writes:
        reason = _why_closed(case, write.target)
        if reason:
            return refuse("protected", f"{write.target.short} is protected: {reason}")
    return None


def _why_closed(case: Case, target: Ref) -> str:
    s = case.view.snapshot
    row = s.find(target)
    if row is None:
        return "it is not in the snapshot"
    if target.kind == "node":
        return ""
    if target.kind == "namespace":
        return _why_namespace_closed(case, row)
    if target.kind == "pod":
        if s.pods.evictable[row] != 1:
            return "its owner does not let it be disturbed"
        row = int(s.pods.workload[row])
    reason = _why_namespace_closed(case, int(s.workloads.namespace[row]))
    priority = int(s.workloads.priority[row])
    if not reason and priority >= case.settings.guard.protected_priority:
        reason = f"priority {priority} (protected from {case.settings.guard.protected_priority})"
    return reason


def _why_namespace_closed(case: Case, row: int) -> str:
    spaces = case.view.snapshot.namespaces
    if spaces.protected[row]:
        return f"namespace {spaces.names[row]} is never touched"
    return "" if spaces.managed[row] else f"namespace {spaces.names[row]} did not opt in"


def drain_spares_protected(case: Case) -> Verdict | None:
    """The backend's drain evicts whatever it can; none of that may be protected.

    A drain that goes step by step evicts only what each step names, and each step is judged. One
    that ends in sleep must empty the node all the same.
    """
    emptied = (2,) if case.settings.act.stepwise else (1, 2)
    for write in case.plan.writes:
        if write.verb is not Verb.DRAIN or write.value not in emptied:
            continue
        row = case.view.snapshot.find(write.target)
        rows = case.view.residents(-2 if row is None else row)
        evictable = rows[case.view.snapshot.pods.evictable[rows] == 1]
        hit = evictable[case.view.pod_protected[evictable]]
        if len(hit):
            name = case.view.snapshot.pod_ref(int(hit[0])).short
            return refuse(
                "protected",
                f"draining {write.target.short} would evict {len(hit)} protected pods, "
                f"first {name}",
                used=len(hit),
                allowed=0,
            )
    return None


def reject_needs_a_person(case: Case) -> Verdict | None:
    """Refusing work is off until a person turns it on."""
    rejects = any(w.verb is Verb.GATE and w.value == Gate.REJECT for w in case.plan.writes)
    if rejects and not case.settings.admission.allow_reject:
        return refuse("reject-is-off", "rejecting work is off: admission.allow_reject is false")
    return None
