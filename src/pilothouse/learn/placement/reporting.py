# SPDX-License-Identifier: Apache-2.0
"""A policy's report: its promises, and a table with every online heuristic beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import HEURISTICS, Learned
from pilothouse.learn.placement.placed import RESOURCES, Resource
from pilothouse.policy import Policy, read, shipped, shipped_names


def find_policy(given: str) -> Policy:
    """A shipped policy by name, or one from a file."""
    if given in shipped_names() or not ("/" in given or Path(given).suffix or Path(given).exists()):
        return shipped(given)
    return read(Path(given))


def evaluate(
    policy: Policy,
    kind: str,
    *,
    nodes: tuple[int, int],
    episodes: int,
    epsilon: float = 0.0,
    seed: int,
    told: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Lines and table, as plain values."""
    resource = policy.card.reward.get("resource")
    load: Resource = resource if resource in RESOURCES else "requests"
    exam = judging.exam(nodes, seed=seed, count=episodes, resource=load)
    chooser = Learned(policy.card.policy, policy.network, epsilon=epsilon)
    told()
    lines = judging.judge(kind, chooser, exam)
    told()
    rows: list[list[str]] = [["arm", "used nodes", "over bound", "spread", "in soft", "in hard"]]
    arms = {chooser.name: exam.marks("mixed", chooser)}
    arms |= {name: exam.rival(name) for name in HEURISTICS}
    for name, marks in arms.items():
        rows.append(
            [
                name,
                f"{marks.active.mean():.2f}",
                f"{marks.active.sum() / exam.bound.sum():.3f}",
                f"{marks.spread.mean():.3f}",
                f"{100 * marks.in_soft:.1f} %",
                f"{100 * marks.in_hard:.1f} %",
            ]
        )
    return {
        "policy": policy.version,
        "kind": kind,
        "simulated": True,
        "nodes": list(nodes),
        "episodes": episodes,
        "seed": seed,
        "epsilon": epsilon,
        "load": load,
        "lines": [line.to_json() for line in lines],
        "table": rows,
    }
