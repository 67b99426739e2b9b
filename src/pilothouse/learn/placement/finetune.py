# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on placements a real scheduler made, promoted only when it measurably improved.

The judge is twofold. On the newest fifth of the record, which is not trained on, what the network
would choose must be worth more, bind by bind the same pods, and not only along a part of it; that
is exact, because a record tells what each of its nodes would have been worth. And on simulated
validation courses no promise that held before may fail. Both are asked against the policy
it was fine-tuned from and against the one in use, which promoting would overwrite: better than a
beginning that nobody uses is no reason to replace what is used. Otherwise the policy before stays,
and the candidate lies beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import Learned
from pilothouse.learn.placement.intervals import t95
from pilothouse.learn.placement.learner import Learner
from pilothouse.learn.placement.placed import beside_cpu
from pilothouse.learn.placement.recorded import Recorded, freeze
from pilothouse.learn.placement.rewards import Reward
from pilothouse.learn.placement.trainer import Settings, Transition
from pilothouse.learn.placement.world import Sight
from pilothouse.policy import Network, Policy, artifact, choose, files_of, read
from pilothouse.policy.features import BesideCPU

FROZEN = "recorded.npz"
PASSES = 20  # over the record, in batches
FEWEST_UPDATES = 200
RATE = 3e-4  # a tenth of a first training's: the weights are good already
RETARGET_EVERY = 50
LEAST_GAIN = 1e-6
STRETCHES = 10  # of the held-out binds
EXAM_NODES, EXAM_COURSES = (3, 6), 16
BEGINNING, IN_USE = "the policy it was fine-tuned from", "the policy in use"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How good a network is."""

    reward: float  # mean over the held-out binds, of the choices it would make
    kept: tuple[str, ...]  # promises that hold on simulated validation courses


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A policy that the candidate had to beat, and by how much it did."""

    role: str  # "the policy it was fine-tuned from", "the policy in use"
    version: str
    evaluation: Evaluation
    gain: float  # of the candidate's reward, mean over the held-out binds
    least_gain: float  # its lower 95 % bound, by paired differences


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuned:
    """What came of it."""

    promoted: bool
    why: str
    rivals: tuple[Rival, ...]  # the beginning first
    after: Evaluation
    stem: Path  # of the files that were written: the policy's, or its candidate's
    binds: int
    updates: int
    digest: str  # of the frozen set

    @property
    def before(self) -> Evaluation:
        return self.rivals[0].evaluation

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"before": asdict(self.before), "stem": str(self.stem)}


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
    used = in_use(policy, out, sees=beside_cpu(reward.resource))
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
    judge = _Judge(policy, held_out, reward)
    beaten = {BEGINNING: start}
    if used is not None and used.version != start.version:
        beaten[IN_USE] = used
    rivals = tuple(judge.rival(*one, learner.network()) for one in beaten.items())
    after = judge.evaluate(learner.network())
    promoted, why = _verdict(rivals, after)
    stem = out / (policy if promoted else f"{policy}-candidate")
    measured = {
        "fine-tuned": {
            "from": start.version,
            "recorded_sha256": digest,
            "binds": recorded.count,
            "updates": updates,
            "held_out_reward": {"before": rivals[0].evaluation.reward, "after": after.reward},
            "gain": {r.version: {"mean": r.gain, "least_95": r.least_gain} for r in rivals},
            "promoted": promoted,
        }
    }
    nodes = max(start.card.trained_on_nodes_max, train.valid.shape[1])
    card = learner.card(policy, reward, nodes=nodes, measured=measured)
    artifact.write(stem, card, learner.tensors())
    made = FineTuned(
        promoted=promoted,
        why=why,
        rivals=rivals,
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


class _Judge:
    """Held-out binds and simulated courses, put to one network after the other."""

    def __init__(self, policy: str, held_out: Recorded, reward: Reward) -> None:
        self._kind = policy if policy in judging.KINDS else ""
        self._held_out, self._worth = held_out, held_out.worth(reward)
        self._exam = judging.exam(EXAM_NODES, count=EXAM_COURSES, resource=reward.resource)

    def evaluate(self, network: Network) -> Evaluation:
        chooser = Learned(self._kind, network)
        lines = judging.judge(self._kind, chooser, self._exam) if self._kind else []
        return Evaluation(
            reward=float(self._values(network).mean()),
            kept=tuple(line.what for line in lines if line.holds),
        )

    def rival(self, role: str, policy: Policy, candidate: Network) -> Rival:
        gains = self._values(candidate) - self._values(policy.network)
        # Binds that follow each other saw much the same cluster; stretches of them are what varies.
        stretches = np.array_split(gains, min(STRETCHES, len(gains)))
        means = np.asarray([stretch.mean() for stretch in stretches])
        half = t95(len(means)) * means.std(ddof=1) / np.sqrt(len(means))
        return Rival(
            role=role,
            version=policy.version,
            evaluation=self.evaluate(policy.network),
            gain=float(gains.mean()),
            least_gain=float(gains.mean() - half),
        )

    def _values(self, network: Network) -> NDArray[np.float64]:
        """(binds,), what this network would have made of them."""
        held_out = self._held_out
        choice = choose(network(held_out.features, held_out.valid), held_out.valid)
        values: NDArray[np.float64] = self._worth[np.arange(held_out.count), choice]
        return values


def in_use(policy: str, out: Path, *, sees: BesideCPU) -> Policy | None:
    """The policy that promoting would overwrite; None where there is none yet."""
    if not any(file.exists() for file in files_of(out / policy)):
        return None
    found = read(out / policy)
    if found.card.beside_cpu != sees:
        raise InvalidSetting(
            f"{out / policy}.json sees {found.card.beside_cpu} beside CPU, but the record and the "
            f"reward show {sees}, so the two cannot be compared. Give another --out."
        )
    return found


def _verdict(rivals: Sequence[Rival], after: Evaluation) -> tuple[bool, str]:
    for rival in rivals:
        before = rival.evaluation
        figures = (
            f"{before.reward:.4f} with {rival.version}, {after.reward:.4f} after, a gain of at "
            f"least {rival.least_gain:.4f} (paired 95 % bound)"
        )
        if not rival.least_gain > LEAST_GAIN:
            return False, f"no sure gain on the held-out binds over {rival.role}: {figures}"
        broken = [what for what in before.kept if what not in after.kept]
        if broken:
            return False, f"a promise that {rival.role} keeps fails now: {broken[0]}"
    return True, f"a sure gain on the held-out binds: {figures}"
