# SPDX-License-Identifier: Apache-2.0
"""From a policy's name to its artefact: train over seeds, examine, keep the best on validation.

A folder of a run holds the settings as they were resolved, TensorBoard scalars, a checkpoint, one
artefact per seed and, under the policy's own name, the one that did best on validation courses.
Those are not the courses that any published figure is taken on. Best is what keeps the policy's
promise best; a reward of one's own promises nothing but itself, so there the highest return is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from pilothouse import __version__
from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import Chooser, Learned
from pilothouse.learn.placement.judging import Exam, Line
from pilothouse.learn.placement.placed import beside_cpu
from pilothouse.learn.placement.playing import F8, returns
from pilothouse.learn.placement.presets import THESIS, Settings
from pilothouse.learn.placement.rewards import Reward, is_registered
from pilothouse.learn.placement.scalars import Scalars
from pilothouse.learn.placement.trainer import Progress, Trainer
from pilothouse.policy import Card, Shape, artifact
from pilothouse.policy.features import FEATURES, NODE_FEATURES, POD_FEATURES, seeing

CHECKPOINT = "checkpoint.npz"
ROUNDING = ("jax", "jaxlib", "numpy", "optax")  # other versions of these round differently
# EL-RL breaks a promise at 8 and at 16; EE and LB are better than at 4 and no slower to serve.
WIDTHS = {"ee": 8, "lb": 8, "el-rl": 24}
VALIDATION_NODES = (3, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a run made."""

    folder: Path
    best: Path  # stem of the artefact that did best on validation
    seconds: float
    compile_seconds: float
    lines: dict[int, list[Line]] = field(default_factory=dict)  # by seed; none without a promise
    returns: dict[int, float] = field(default_factory=dict)  # by seed, where they decided


def sized(policy: str, settings: Settings) -> Settings:
    """The settings with a width that holds this policy's promises on thousands of nodes."""
    if settings.stages == THESIS.stages:
        return settings  # three nodes are its whole world
    width = WIDTHS.get(policy, max(WIDTHS.values()))
    return replace(settings, encoder=(width, width), head=(width,))


def train(
    policy: str,
    settings: Settings,
    reward: Reward,
    *,
    seeds: Sequence[int],
    out: Path,
    resume: bool = False,
    command: str = "",
    told: Callable[[Progress, int], None] = lambda progress, total: None,
) -> Trained:
    """Train one network per seed, write them all, and name the best after the policy."""
    trainer = Trainer(settings, reward, seeds)
    out.mkdir(parents=True, exist_ok=True)
    if resume:
        trainer.restore(out / CHECKPOINT)
    resolved = {
        "policy": policy,
        "settings": asdict(settings),
        "reward": reward.card(),
        "seeds": list(seeds),
        "revision": __version__,
    }
    (out / "run.json").write_text(json.dumps(resolved, indent=1) + "\n", encoding="utf-8")
    began = time.perf_counter()
    with Scalars(out / "scalars") as scalars:
        for progress in trainer.run():
            scalars.add(progress.step, _curves(progress, seeds))
            trainer.save(out / CHECKPOINT)
            told(progress, trainer.total_steps)
    seconds = time.perf_counter() - began
    validation = validation_of(settings, reward)
    examined = _write_all(policy, trainer, validation, out, command)
    best = max(seeds, key=lambda seed: examined[seed].merit)
    _copy(out / f"{policy}-seed{best}", out / policy)
    return Trained(
        folder=out,
        best=out / policy,
        seconds=seconds,
        compile_seconds=trainer.compile_seconds,
        lines={seed: one.lines for seed, one in examined.items()},
        returns={s: one.mean_return for s, one in examined.items() if one.returns is not None},
    )


def validation_of(settings: Settings, reward: Reward) -> Exam:
    """What the seed that ships is chosen on: up to as many nodes as it was trained on."""
    nodes = max(settings.stages)
    sizes = min(VALIDATION_NODES[0], nodes), nodes
    return judging.exam(sizes, count=32, steps=4 * nodes, resource=reward.resource)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Examined:
    """What one seed's network reached on the validation courses."""

    lines: list[Line]
    returns: F8 | None  # (courses,), of a reward of one's own

    @property
    def merit(self) -> tuple[float, ...]:
        return _merit(self.lines) if self.returns is None else (self.mean_return,)

    @property
    def mean_return(self) -> float:
        return float("nan") if self.returns is None else float(self.returns.mean())


def _examine(policy: str, chooser: Chooser, reward: Reward, on: Exam) -> _Examined:
    promised = policy in judging.KINDS
    own = not promised or not is_registered(reward)
    return _Examined(
        lines=judging.judge(policy, chooser, on) if promised else [],
        returns=returns(on.mixed, chooser, reward) if own else None,
    )


def _write_all(
    policy: str, trainer: Trainer, validation: Exam, out: Path, command: str
) -> dict[int, _Examined]:
    examined = {}
    for index, seed in enumerate(trainer.seeds):
        chooser = Learned(policy, trainer.network(index))
        examined[seed] = _examine(policy, chooser, trainer.reward, validation)
        card = card_of(policy, trainer, seed, _measured(examined[seed]), command)
        artifact.write(out / f"{policy}-seed{seed}", card, trainer.weights(index))
    return examined


def _measured(one: _Examined) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if one.lines:
        told["validation, simulated"] = [line.to_json() for line in one.lines]
    if one.returns is not None:
        told["mean return, validation, simulated"] = round(one.mean_return, 5)
    return told


def card_of(
    policy: str, trainer: Trainer, seed: int, measured: dict[str, Any], command: str = ""
) -> Card:
    """The card of one seed's policy."""
    s = trainer.settings
    return Card(
        policy=policy,
        node_features=seeing(NODE_FEATURES, beside_cpu(trainer.reward.resource)),
        pod_features=seeing(POD_FEATURES, beside_cpu(trainer.reward.resource)),
        network=Shape(encoder=(len(FEATURES), *s.encoder), head=(3 * s.encoder[-1], *s.head, 1)),
        reward=trainer.reward.card() | {"gamma": s.gamma},
        seed=seed,
        revision=__version__,
        command=command,
        made_with={name: metadata.version(name) for name in ROUNDING},
        trained_on_nodes_max=max(s.stages),
        measured=measured,
    )


def _merit(lines: Sequence[Line]) -> tuple[float, ...]:
    """More lines held, then the larger sum of margins as shares of the bounds, guards apart."""
    margins = [
        (line.value - line.bound if line.at_least else line.bound - line.value)
        / max(abs(line.bound), 0.02)
        for line in lines
        if not line.guard
    ]
    return sum(line.holds for line in lines), sum(margins)


def _copy(source: Path, stem: Path) -> None:
    """The same artefact under the policy's name; the card last, as a reader expects."""
    for suffix in (".safetensors", ".json"):
        data = source.with_name(source.name + suffix).read_bytes()
        stem.with_name(stem.name + suffix).write_bytes(data)


def _curves(progress: Progress, seeds: Sequence[int]) -> dict[str, float]:
    """Scalars by tag; a tag per seed where there are several."""
    curves: dict[str, Any] = {
        "epsilon": progress.epsilon,
        "steps_per_second": progress.steps_per_second,
    }
    for name in ("td_loss", "q_values", "episodic_return"):
        for seed, value in zip(seeds, getattr(progress, name), strict=True):
            curves[name if len(seeds) == 1 else f"{name}/seed-{seed}"] = value
    return curves
