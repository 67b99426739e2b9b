# SPDX-License-Identifier: Apache-2.0
"""Practice: a policy is trained by placing real pods, the thesis's way.

The environment is ``PlacePods-v1`` with its live backend. After every update the policy's two
files are replaced, so that a scorer that was started on them serves what was just learned. That
is slow (a placement takes as long as its pod needs to run) and it is real.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from pilothouse import __version__
from pilothouse.learn.placement.learner import Learner, sight_of
from pilothouse.learn.placement.placed import beside_cpu
from pilothouse.learn.placement.rewards import Reward
from pilothouse.learn.placement.scalars import Scalars
from pilothouse.learn.placement.trainer import Settings, Transition
from pilothouse.learn.placement.world import Sight
from pilothouse.policy import Network, Policy, artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Practiced:
    """What a practice made."""

    stem: Path  # of the policy's files
    placements: int
    updates: int
    versions: tuple[str, ...]  # of the policy, as they were written
    returns: tuple[float, ...]  # of each episode that ended
    seconds: float


def one_at_a_time(settings: Settings, steps: int | None) -> Settings:
    """The settings for one cluster; fewer steps shrink warm-up and target updates in proportion."""
    if steps is None:
        return replace(settings, envs=1, updates=1)
    share = steps / settings.steps
    return replace(
        settings,
        envs=1,
        updates=1,
        steps=steps,
        train_every=max(min(settings.train_every, steps // 4), 1),
        learning_starts=max(round(settings.learning_starts * share), 1),
        target_every=max(round(settings.target_every * share), 1),
    )


def practice(
    policy: str,
    settings: Settings,
    env: gymnasium.Env[Any, Any],
    reward: Reward,
    *,
    seed: int,
    out: Path,
    start: Policy | None = None,
    told: Callable[[], None] = lambda: None,
) -> Practiced:
    """Place ``settings.steps`` pods; the files at ``out / policy`` change after every update."""
    width = int(env.observation_space["nodes"].shape[0])  # type: ignore[index]
    sees = beside_cpu(reward.resource)
    learner = Learner(settings, width=width, seed=seed, start=start, beside_cpu=sees)
    out.mkdir(parents=True, exist_ok=True)
    _describe(policy, learner, reward, out)
    began, running, losses = time.perf_counter(), 0.0, 0
    returns: list[float] = []
    versions: list[str] = []
    updated, sights = began, []  # when it last was, and what was seen since
    seen, info = env.reset(seed=seed)
    with Scalars(out / "scalars") as scalars:
        while learner.placements < settings.steps:
            before = _sight(seen, info)
            choice = learner.choose(before)
            sights.append(before)
            could = bool(info["action_mask"].any())
            seen, value, ended, cut, info = env.step(np.int64(choice))
            learner.take(_row(before, choice, float(value), ended, could, _sight(seen, info)))
            running += float(value)
            told()
            done = learner.placements
            if done >= settings.learning_starts and done % settings.train_every == 0:
                now = time.perf_counter()
                curves = {
                    "q_values": _best_value(learner.network(), sights),
                    "epsilon": learner.epsilon,
                    "steps_per_second": len(sights) / max(now - updated, 1e-9),
                    "td_loss": learner.learn(),
                }
                scalars.add(done, curves)
                updated, sights, losses = now, [], losses + 1
                versions.append(_write(policy, learner, reward, info, out))
            if done % settings.target_every == 0:
                learner.retarget()
            if ended or cut:
                returns.append(running)
                scalars.add(done, {"episodic_return": running})
                running = 0.0
                seen, info = env.reset()
    return Practiced(
        stem=out / policy,
        placements=learner.placements,
        updates=losses,
        versions=tuple(versions),
        returns=tuple(returns),
        seconds=time.perf_counter() - began,
    )


def _best_value(network: Network, sights: list[Sight]) -> float:
    """What the best feasible node is worth, mean over clusters that have one; 0 if none has."""
    values = [
        np.max(network(np.asarray(s.features), np.asarray(s.valid))[np.asarray(s.feasible)])
        for s in sights
        if s.feasible.any()
    ]
    return float(np.mean(values)) if values else 0.0


def _sight(seen: dict[str, Any], info: dict[str, Any]) -> Sight:
    return sight_of(seen["nodes"], seen["pod"], info["node_mask"])


def _row(
    before: Sight, choice: int, value: float, ended: bool, could: bool, after: Sight
) -> Transition:
    columns: dict[str, Any] = {
        "choice": np.int32(choice),
        "reward": np.float32(value),
        "ended": np.bool_(ended),
        "counts": np.bool_(could),
    }
    return Transition(sight=before, after=after, **columns)


def _write(policy: str, learner: Learner, reward: Reward, info: dict[str, Any], out: Path) -> str:
    measured = {"live": {"placements": learner.placements, "epsilon": round(learner.epsilon, 4)}}
    nodes = int(np.sum(info["node_mask"]))
    card = learner.card(policy, reward, nodes=nodes, measured=measured)
    written = artifact.write(out / policy, card, learner.tensors())
    return f"{written.policy}-{written.weights_sha256[:12]}"


def _describe(policy: str, learner: Learner, reward: Reward, out: Path) -> None:
    resolved = {
        "policy": policy,
        "live": True,
        "settings": asdict(learner.settings),
        "reward": reward.card(),
        "seed": learner.seed,
        "revision": __version__,
    }
    (out / "run.json").write_text(json.dumps(resolved, indent=1) + "\n", encoding="utf-8")
