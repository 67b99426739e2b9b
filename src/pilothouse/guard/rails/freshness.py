# SPDX-License-Identifier: Apache-2.0
"""Old, thin or alarming data makes us do less, never more."""

from __future__ import annotations

from pilothouse.domain import Source, Verdict
from pilothouse.guard.case import Case, refuse

FEW_NODES = 3
METRICS = "metrics"


def data_is_fresh(case: Case) -> Verdict | None:
    """Disruptive actions need sources that are young and complete, above all for their nodes."""
    if not case.is_disruptive:
        return None
    for source in case.view.snapshot.sources:
        verdict = _source_is_fresh(case, source)
        if verdict is not None:
            return verdict
    return _nodes_are_fresh(case)


def _source_is_fresh(case: Case, source: Source) -> Verdict | None:
    s, age = case.settings.guard, source.age_seconds
    # Metrics come node by node, and the age of the worst says nothing about the others.
    enough = source.name == METRICS and case.view.fresh_share >= s.completeness
    if age > s.stale_seconds and not enough:
        return refuse(
            "stale-data",
            f"{source.name} is {age} s old, the limit is {s.stale_seconds} s",
            used=age,
            allowed=s.stale_seconds,
        )
    if source.completeness_permille < 1000 * s.completeness:
        return refuse(
            "thin-data",
            f"{source.name} is {source.completeness_permille / 1000:.2f} complete, "
            f"needs {s.completeness:.2f}",
            used=source.completeness_permille / 1000,
            allowed=s.completeness,
        )
    return None


def _nodes_are_fresh(case: Case) -> Verdict | None:
    """Usage of the nodes concerned; that a node is not ready needs no usage to be known."""
    snapshot, limit = case.view.snapshot, case.settings.guard.stale_seconds
    rows = [snapshot.find(ref) for ref in case.plan.nodes]
    for write in case.plan.writes:
        row = snapshot.find(write.target) if write.target.kind == "pod" else None
        rows.append(None if row is None else int(snapshot.pods.node[row]))
    for row in rows:
        if row is None or row < 0 or not snapshot.nodes.ready[row]:
            continue
        age = int(snapshot.nodes.age_seconds[row])
        if age > limit:
            name = snapshot.nodes.names[row]
            return refuse(
                "stale-data",
                f"usage of {name} is {age} s old, the limit is {limit} s",
                used=age,
                allowed=limit,
            )
    return None


def cluster_is_mostly_ready(case: Case) -> Verdict | None:
    """With many nodes unready we may be the ones who are blind: freeze."""
    if not case.is_disruptive:
        return None
    allowed = max(FEW_NODES, int(len(case.view.snapshot.nodes) * case.settings.guard.unready_share))
    if case.view.unready <= allowed:
        return None
    return refuse(
        "too-many-unready",
        f"{case.view.unready} nodes are not ready, nothing disruptive happens above {allowed}",
        used=case.view.unready,
        allowed=allowed,
    )
