# SPDX-License-Identifier: Apache-2.0
"""Scores and reasons for one pod, from the board."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pilothouse import policy
from pilothouse.policy.machines import Machine, Request, columns
from pilothouse.policy.network import pool
from pilothouse.policy.reasons import Flip, contributions, every_flip
from pilothouse.scorer.board import Board
from pilothouse.scorer.shapes import FlipOut, NodeIn, NodeScore, PodIn, SuggestionOut

WORDS = {
    "latency_ms": ("a latency", "ms"),
    "cpu_requested_share": ("a CPU request share", ""),
    "memory_requested_share": ("a memory request share", ""),
    "disk_requested_share": ("a disk request share", ""),
    "pods_share": ("a share of pods", ""),
    "idle_power_share": ("an idle power share", ""),
}
STATES = {  # off, on
    "active": ("idle", "active"),
    "latency_known": ("of unknown latency", "of known latency"),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """The nodes in front of a pod, and what the policy made of them."""

    machines: Sequence[Machine]
    candidates: NDArray[np.bool_]
    features: NDArray[np.float32]
    feature_names: tuple[str, ...]
    pooled: NDArray[np.float32]
    q: NDArray[np.float32]

    @property
    def choice(self) -> int:
        return int(policy.choose(self.q, self.candidates))

    @property
    def candidate_names(self) -> list[str]:
        return [m.name for m, is_one in zip(self.machines, self.candidates, strict=True) if is_one]


def request_from(pod: PodIn) -> Request:
    none = float("nan")
    return Request(
        cpu_millicores=pod.cpu_millicores,
        memory_mib=pod.memory_mib,
        disk_mib=pod.disk_mib,
        soft_limit_ms=pod.soft_limit_ms or none,
        hard_limit_ms=pod.hard_limit_ms or none,
        user=pod.user,
    )


def score(
    board: Board,
    request: Request,
    *,
    names: Sequence[str] | None = None,
    given: Sequence[NodeIn] = (),
) -> Scored:
    """Pool over the whole cluster, score the named nodes (all of them when none are named)."""
    assert board.policy is not None  # the routes answer 503 before
    measured = {node: m.milliseconds for node, m in board.latencies(request.user).items()}
    machines = {machine.name: machine for machine in board.machines()}
    for node in given:
        machines[node.name] = _with(machines.get(node.name), node)
        if node.latency_ms is not None:
            measured[node.name] = node.latency_ms
    rows = list(machines.values())
    latency = [measured.get(row.name, float("nan")) for row in rows]
    nodes, fits = columns(rows, latency, request)
    wanted = set(machines if names is None else names)
    avoided = set(board.avoided())
    asked = np.asarray([row.name in wanted for row in rows], np.bool_) & fits
    kept = asked & np.asarray([row.name not in avoided for row in rows], np.bool_)
    network = board.policy.network
    features = policy.build(nodes, request.asks, beside_cpu=network.beside_cpu)
    features = features.reshape(len(rows), len(policy.FEATURES))
    encoded = network.encode(features)
    pooled = pool(encoded, np.ones(len(rows), np.bool_))
    return Scored(
        machines=rows,
        candidates=kept if kept.any() else asked,
        features=features,
        feature_names=board.policy.card.features,
        pooled=pooled,
        q=network.judge(encoded, pooled),
    )


def _with(machine: Machine | None, node: NodeIn) -> Machine:
    """The caller's values over the watched ones."""
    base = machine or Machine(
        name=node.name,
        address="",
        ready=True,
        pods=0,
        counted_pods=0,
        pod_capacity=110,
        cpu_requested=0,
        cpu_allocatable=0,
        memory_requested=0,
        memory_allocatable=0,
        idle_power_share=float("nan"),
    )
    given = node.model_dump(exclude_none=True, exclude={"name", "latency_ms", "active"})
    made = replace(base, **given)
    return made if node.active is None else replace(made, counted_pods=int(node.active))


def favored(board: Board, uid: str, candidates: Sequence[str]) -> dict[str, int] | None:
    """What was published for a pod about these candidates, rounded as the scheduler plugin does.

    None where that favors none of them: all would be equal and nobody would have chosen, so the
    policy does, as in the plugin.
    """
    published = board.suggestion(uid) if uid else None
    given = published.scores if published else {}
    said = {name: math.floor(given.get(name, 0.0) + 0.5) for name in candidates}
    return said if any(score > 0 for score in said.values()) else None


def suggest(board: Board, pod: PodIn, nodes: Sequence[NodeIn] | None) -> SuggestionOut:
    """Scores for the asked nodes, each with its reasons."""
    names = None if nodes is None else [node.name for node in nodes]
    inline = [n for n in nodes or () if n.model_dump(exclude_none=True, exclude={"name"})]
    scored = score(board, request_from(pod), names=names, given=inline)
    published = favored(board, pod.uid, scored.candidate_names)
    scores = policy.to_scores(scored.q, scored.candidates)
    if published is not None:
        said = [published.get(machine.name, 0) for machine in scored.machines]
        scores = np.asarray(said, np.int64)
    known = {machine.name: row for row, machine in enumerate(scored.machines)}
    wanted = list(known) if names is None else [name for name in names if name in known]
    chosen = _chosen(scored, scores)
    reasons = _reasons(board, scored)
    flips = {} if published else _flips(board, scored, chosen, [known[name] for name in wanted])
    return SuggestionOut(
        policy=board.policy.version if board.policy else "",
        chosen=scored.machines[chosen].name if chosen >= 0 else None,
        published=published is not None,
        nodes=[
            _node_score(
                scored,
                known[name],
                scores,
                reasons,
                flips.get(known[name]),
                published=published is not None,
            )
            for name in wanted
        ],
        unknown=[name for name in names or () if name not in known],
    )


def _chosen(scored: Scored, scores: NDArray[np.int64]) -> int:
    if not scored.candidates.any():
        return -1
    return int(np.argmax(np.where(scored.candidates, scores, -1)))


def _reasons(board: Board, scored: Scored) -> dict[str, NDArray[np.float32]]:
    assert board.policy is not None
    if not scored.machines:
        return {}
    return contributions(board.policy.network, scored.features, scored.pooled, scored.candidates)


def _flips(
    board: Board, scored: Scored, chosen: int, rows: Sequence[int]
) -> dict[int, list[FlipOut]]:
    """For each candidate that has a rival, all that would have flipped it; the nearest first.

    The rival of the chosen node is the best of the others, and theirs is the chosen one.
    """
    assert board.policy is not None
    others = scored.candidates.copy()
    others[chosen] = False
    asked = np.asarray([row for row in rows if scored.candidates[row]], np.intp)
    if not others.any() or not len(asked):
        return {}
    second = int(np.argmax(np.where(others, scored.q, -np.inf)))
    wins = asked == chosen
    rivals = np.where(wins, second, chosen)
    found = every_flip(
        board.policy.network, scored.features[asked], scored.pooled, scored.q[rivals], wins
    )
    names = [machine.name for machine in scored.machines]
    return {
        int(row): [_flip_out(flip, names[row], names[second] if won else names[row]) for flip in of]
        for row, won, of in zip(asked, wins, found, strict=True)
    }


def _flip_out(found: Flip, name: str, then_chosen: str) -> FlipOut:
    sentence = flip_sentence(found, name, f"{then_chosen} would have been chosen")
    now, then = round(found.now, 6), round(found.then, 6)
    return FlipOut(feature=found.feature, now=now, then=then, sentence=sentence)


def _node_score(
    scored: Scored,
    row: int,
    scores: NDArray[np.int64],
    reasons: dict[str, NDArray[np.float32]],
    flips: list[FlipOut] | None,
    *,
    published: bool,
) -> NodeScore:
    return NodeScore(
        node=scored.machines[row].name,
        score=int(scores[row]),
        q=round(float(scored.q[row]), 6),
        feasible=bool(scored.candidates[row]),
        features={
            name: round(float(value), 6)
            for name, value in zip(scored.feature_names, scored.features[row], strict=True)
        },
        contributions={name: round(float(values[row]), 6) for name, values in reasons.items()},
        flip=flips[0] if flips else None,
        flips=flips or [],
        no_flip="" if flips else _no_flip(scored, row, flips, published=published),
    )


def _no_flip(scored: Scored, row: int, flips: list[FlipOut] | None, *, published: bool) -> str:
    name = scored.machines[row].name
    if not scored.candidates[row]:
        return f"{name} was no candidate: it is to be avoided, or the pod does not fit there"
    if published:
        return "scores published for this pod decided, whatever the nodes are like"
    if flips is None:
        return f"{name} was the only candidate"
    return f"no single feature of {name} within its range would have changed the choice"


def flip_sentence(found: Flip, node: str, consequence: str) -> str:
    """``at a latency of 30 ms on worker-1 (now 12 ms) worker-2 would have been chosen``."""
    if found.feature in STATES:
        now, then = (STATES[found.feature][round(value)] for value in (found.now, found.then))
        return f"with {node} {then} (now {now}) {consequence}"
    what, unit = WORDS[found.feature]
    then = f"{found.then:.4g} {unit}".strip()
    now = f"{found.now:.4g} {unit}".strip()
    return f"at {what} of {then} on {node} (now {now}) {consequence}"
