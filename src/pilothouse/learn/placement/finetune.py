# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on placements a real scheduler made, promoted only when it measurably improved.

The judge is twofold. On the newest fifth of the record, which is not trained on, the mean reward
of what the network would choose must rise; that is exact, because a record tells what each of its
nodes would have been worth. And on simulated validation courses no promise of the policy that
held before may fail. Otherwise the policy before stays, and the candidate lies beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import Learned
from pilothouse.learn.placement.learner import Learner
from pilothouse.learn.placement.recorded import Recorded, freeze
from pilothouse.learn.placement.rewards import Reward
from pilothouse.learn.placement.trainer import Settings, Transition
from pilothouse.learn.placement.world import Sight
from pilothouse.policy import Network, Policy, artifact, choose

FROZEN = "recorded.npz"
PASSES = 20  # over the record, in batches
FEWEST_UPDATES = 200
RATE = 3e-4  # a tenth of a first training's: the weights are good already
RETARGET_EVERY = 50
LEAST_GAIN = 1e-6
EXAM_NODES, EXAM_COURSES = (3, 6), 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How good a network is, before and after."""

    reward: float  # mean over the held-out binds, of the choices it would make
    kept: tuple[str, ...]  # promises that hold on simulated validation courses


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuned:
    """What came of it."""

    promoted: bool
    why: str
    before: Evaluation
    after: Evaluation
    stem: Path  # of the files that were written: the policy's, or its candidate's
    binds: int
    updates: int
    digest: str  # of the frozen set

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"stem": str(self.stem)}


def fine_tune(
    policy: str,
    settings: Settings,
    reward: Reward,
    recorded: Recorded,
    *,
    start: Policy,
    seed: int,
    out: Path,
    told: Callable[[], None] = lambda: None,
) -> FineTuned:
    """Freeze the record, train on it, judge, and promote or not."""
    digest = freeze(recorded, out / FROZEN)
    train, held_out = recorded.split()
    updates = max(PASSES * train.count // settings.batch, FEWEST_UPDATES)
    learner = Learner(
        _gentle(settings, train.count, updates), width=train.valid.shape[1], seed=seed, start=start
    )
    for row in _transitions(train, reward):
        learner.take(row)
    for number in range(1, updates + 1):
        learner.learn()
        if number % RETARGET_EVERY == 0:
            learner.retarget()
        told()
    kind = policy if policy in judging.KINDS else ""
    exam = judging.exam(EXAM_NODES, count=EXAM_COURSES, resource=reward.resource)
    before, after = (
        _evaluated(network, kind, held_out, reward, exam)
        for network in (start.network, learner.network())
    )
    promoted, why = _verdict(before, after)
    stem = out / (policy if promoted else f"{policy}-candidate")
    measured = {
        "fine-tuned": {
            "from": start.version,
            "recorded_sha256": digest,
            "binds": recorded.count,
            "updates": updates,
            "held_out_reward": {"before": before.reward, "after": after.reward},
            "promoted": promoted,
        }
    }
    nodes = max(start.card.trained_on_nodes_max, train.valid.shape[1])
    card = learner.card(policy, reward, nodes=nodes, measured=measured)
    artifact.write(stem, card, learner.tensors())
    made = FineTuned(
        promoted=promoted,
        why=why,
        before=before,
        after=after,
        stem=stem,
        binds=recorded.count,
        updates=updates,
        digest=digest,
    )
    (out / "run.json").write_text(json.dumps(made.to_json(), indent=1) + "\n", encoding="utf-8")
    return made


def _gentle(settings: Settings, binds: int, updates: int) -> Settings:
    return replace(
        settings,
        envs=1,
        updates=1,
        train_every=1,
        steps=updates,
        buffer=max(binds - 1, 1),
        batch=min(settings.batch, binds),
        learning_rate=RATE,
        learning_rate_end=RATE / 10,
    )


def _transitions(recorded: Recorded, reward: Reward) -> list[Transition]:
    """Each bind with the next one as its next state; the last one only serves as such."""
    worth = recorded.worth(reward)
    sights: list[Any] = [
        Sight(*columns)
        for columns in zip(recorded.nodes, recorded.pod, recorded.valid, strict=True)
    ]
    taken: Any = recorded.choice
    flags: dict[str, Any] = {"ended": np.bool_(False), "counts": np.bool_(True)}
    return [
        Transition(
            sight=sights[at],
            choice=taken[at],
            reward=worth[at, taken[at]],
            after=sights[at + 1],
            **flags,
        )
        for at in range(recorded.count - 1)
    ]


def _evaluated(
    network: Network, kind: str, held_out: Recorded, reward: Reward, exam: judging.Exam
) -> Evaluation:
    choice = choose(network(held_out.features, held_out.valid), held_out.valid)
    worth = held_out.worth(reward)
    lines = judging.judge(kind, Learned(kind, network), exam) if kind else []
    return Evaluation(
        reward=float(worth[np.arange(held_out.count), choice].mean()),
        kept=tuple(line.what for line in lines if line.holds),
    )


def _verdict(before: Evaluation, after: Evaluation) -> tuple[bool, str]:
    broken = [what for what in before.kept if what not in after.kept]
    figures = f"{before.reward:.4f} before, {after.reward:.4f} after"
    if after.reward <= before.reward + LEAST_GAIN:
        return False, f"the held-out binds are worth no more: {figures}"
    if broken:
        return False, f"a promise that held fails now: {broken[0]}"
    return True, f"the held-out binds are worth more: {figures}"
