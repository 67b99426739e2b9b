# SPDX-License-Identifier: Apache-2.0
"""How much may happen in a sliding window, and how much at any time.

An action counts for every node, workload and namespace it writes to; a drain counts once for its
node and by its pods for the cluster. Third parties together get half of every shared budget,
rounded down, and one node out of service is kept for Safety, so that nobody can spend the budget
that a failing node will need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pilothouse.domain import Verb, Verdict
from pilothouse.guard.case import THIRD_PARTY_RANK, Case, refuse
from pilothouse.guard.ledger import OUT_OF_SERVICE, disturbed_by
from pilothouse.guard.tally import Use, touched

PROTECTIVE_RANK = 10  # Safety and whoever goes before it


def agent(case: Case) -> Verdict | None:
    allowed = case.settings.guard.per_agent
    uses = case.tally.uses("agent", case.sender.name)
    return _within(case, uses, allowed, 1, "per-agent", f"actions of {case.sender.name}")


def nodes(case: Case) -> Verdict | None:
    keys = touched(case.plan, case.view.snapshot)[0]
    return _each(case, "node", keys, case.settings.guard.per_node)


def workloads(case: Case) -> Verdict | None:
    keys = touched(case.plan, case.view.snapshot)[1]
    return _each(case, "workload", keys, case.settings.guard.per_workload)


def namespaces(case: Case) -> Verdict | None:
    keys = touched(case.plan, case.view.snapshot)[2]
    return _each(case, "namespace", keys, case.settings.guard.per_namespace)


def _each(case: Case, budget: str, keys: Iterable[str], allowed: int) -> Verdict | None:
    for key in keys:
        uses, what = case.tally.uses(budget, key), f"actions on {budget} {key.rpartition('/')[2]}"
        verdict = _within(case, uses, allowed, 1, f"per-{budget}", what)
        if verdict is None and case.third_party:
            strangers = [use for use in uses if _is_third_party(case, use.agent)]
            half = allowed // 2
            verdict = _within(case, strangers, half, 1, f"per-{budget}", f"third-party {what}")
        if verdict is None and budget == "workload" and _tier(case, case.sender.name) == 1:
            # One action on a workload is kept for Safety: saving must not cost it the replica.
            others = [use for use in uses if _tier(case, use.agent) >= 1]
            rest = max(allowed - 1, 1)
            verdict = _within(case, others, rest, 1, "per-workload", f"{what} of this rank")
        if verdict is not None:
            return verdict
    return None


def _within(
    case: Case, uses: list[Use], allowed: int, more: int, rule: str, what: str
) -> Verdict | None:
    used = sum(use.amount for use in uses)
    if used + more <= allowed:
        return None
    free_at = _free_at(uses, used + more - allowed, case.settings.guard.window_seconds)
    asked = f", {more} more asked for" if more > 1 else ""
    return refuse(
        rule,
        f"{used} of {allowed} {what} in this window{asked}",
        used=used,
        allowed=allowed,
        free_at=free_at,
    )


def _free_at(uses: list[Use], excess: int, window: int) -> int | None:
    """When enough old uses have slid out of the window; None when they never will suffice."""
    for use in sorted(uses, key=lambda use: use.at):
        excess -= use.amount
        if excess <= 0:
            return use.at + window
    return None


def nodes_out_of_service(case: Case) -> Verdict | None:
    """Tainted, drained or asleep because of us, at any time."""
    new = {w.target for w in case.plan.writes if _takes_out(w.verb, w.value)}
    new -= set(case.tally.nodes_out)
    if not new:
        return None
    total = len(case.view.snapshot.nodes)
    allowed = at_least_one(total, case.settings.guard.node_share)
    out = case.tally.nodes_out
    yours = [a for a in out.values() if _tier(case, a) >= _tier(case, case.sender.name)]
    mine = _tier_allowance(case, allowed)
    if len(out) + len(new) <= allowed and len(yours) + len(new) <= mine:
        return None
    kept = "" if mine == allowed else f" ({mine} for agents of this rank)"
    return refuse(
        "node-share",
        f"{len(out)} of {allowed} nodes{kept} are out of service because of us",
        used=len(out),
        allowed=min(allowed, mine),
    )


def _takes_out(verb: Verb, value: int) -> bool:
    return verb in OUT_OF_SERVICE and (value == 0) == (verb is Verb.POWER)


def _tier(case: Case, name: str) -> int:
    """0 protective, 1 ours, 2 third party."""
    rank = case.tally.ranks.get(name, THIRD_PARTY_RANK)
    return 0 if rank <= PROTECTIVE_RANK else 1 if rank < THIRD_PARTY_RANK else 2


def _tier_allowance(case: Case, allowed: int) -> int:
    tier = _tier(case, case.sender.name)
    if tier == 0:
        return allowed
    return max(allowed - 1, 1) if tier == 1 else allowed // 2


def _is_third_party(case: Case, name: str) -> bool:
    return _tier(case, name) == 2


def drains(case: Case) -> Verdict | None:
    """Nodes with pods on them that we are emptying at the same time."""
    new = {w.target for w in case.plan.writes if w.verb is Verb.DRAIN and w.value}
    if any(w.verb is Verb.EVICT for w in case.plan.writes):
        new |= {w.target for w in case.plan.writes if w.verb is Verb.TAINT}
    new = {ref for ref in new if case.view.is_draining(ref)}
    if not new:
        return None
    busy = [ref for ref in case.tally.nodes_out if ref not in new and case.view.is_draining(ref)]
    allowed = case.settings.guard.drains_at_once
    allowed = allowed // 2 if case.third_party else allowed
    if len(busy) + len(new) <= allowed:
        return None
    name = f", {busy[0].short} is not empty yet" if busy else ""
    return refuse(
        "drains-at-once",
        f"{len(busy)} of {allowed} drains under way{name}",
        used=len(busy),
        allowed=allowed,
    )


def disturbed_pods(case: Case) -> Verdict | None:
    more = disturbed_by(case.plan.writes, case.view.snapshot)
    if not more:
        return None
    if _empties_failing_node(case):
        return None
    allowed = at_least_one(len(case.view.snapshot.pods), case.settings.guard.disturbed_share)
    uses = case.tally.uses("disturbed")
    verdict = _within(case, uses, allowed, more, "disturbed-share", "pods moved")
    if verdict is None and case.third_party:
        strangers = [use for use in uses if _is_third_party(case, use.agent)]
        what = "pods moved by third parties"
        verdict = _within(case, strangers, allowed // 2, more, "disturbed-share", what)
    return verdict


def _empties_failing_node(case: Case) -> bool:
    """Safety emptying a node is one budgeted action, limited by nodes and drains at once: its pods
    are lost otherwise. What it moves still counts against everybody's next request."""
    drains_node = any(w.verb is Verb.DRAIN and w.value == 1 for w in case.plan.writes)
    return drains_node and _tier(case, case.sender.name) == 0


def gates(case: Case) -> Verdict | None:
    spaces = case.view.snapshot.namespaces
    for write in case.plan.writes:
        row = case.view.snapshot.find(write.target) if write.verb is Verb.GATE else None
        if row is None or not write.value or spaces.gate[row]:
            continue
        used = case.view.gated + len(case.tally.granted_gates)
        allowed = case.settings.guard.gated_namespaces
        allowed = allowed // 2 if case.third_party else allowed
        if used + 1 > allowed:
            return refuse(
                "gated-namespaces",
                f"{used} of {allowed} namespaces are gated",
                used=used,
                allowed=allowed,
            )
    return None


def at_least_one(total: int, share: float) -> int:
    """Shares round up, so that a small cluster is not frozen; nothing of nothing is nothing."""
    # Rounded first: 0.1 * 70 is a little more than 7, and must not become 8.
    return max(math.ceil(round(total * share, 6)), 1) if total else 0
