# SPDX-License-Identifier: Apache-2.0
"""Arms side by side while the learned ones learn, in the world of one of the thesis's tests.

Each learned arm is trained with the thesis's hyper-parameters on courses of the test, one network
per seed. Again and again the training is halted and every network plays an *episode*: its own
course of the test, which it is not trained on, exploring as much as its training does at that
moment. Arms that learn nothing play the same courses once and stand beside as they are. Hybrid is
the default score plugins with EL-RL as it is then, which never explores.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.errors import InvalidSetting, UnknownName
from pilothouse.learn.placement import comparing, rewards, thesis_tests
from pilothouse.learn.placement.chooser import HEURISTICS, Chooser, Hybrid, Learned
from pilothouse.learn.placement.comparing import FIGURES, LEARNED, Plot, Row
from pilothouse.learn.placement.course import Courses
from pilothouse.learn.placement.playing import F8, Played, joined, play
from pilothouse.learn.placement.presets import Settings
from pilothouse.learn.placement.rewards import Reward
from pilothouse.learn.placement.thesis_tests import Trial
from pilothouse.learn.placement.trainer import Progress, Trainer

HYBRID = "hybrid"
LEARNS_AS = {name: name for name in LEARNED} | {HYBRID: "el-rl"}  # arm to what is trained for it
LEAST_CYCLES = 3  # so that each node is the nearest once
APART = 1_000_003  # seeds of courses to train on and of courses to play never meet


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episode:
    """One course of every seed, by the networks as they were then."""

    trained: int  # placements in each cluster before it; 0 where nothing is learned
    epsilon: float  # share of its choices that were random
    returns: tuple[float, ...]  # of the training's own episodes up to then, by seed
    played: Played


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learning:
    """How the arms fared, episode by episode; those that learn nothing have one."""

    trial: Trial
    episodes: dict[str, list[Episode]]

    @property
    def length(self) -> int:
        return max(map(len, self.episodes.values()))

    def rows(self) -> list[tuple[str, Episode, dict[str, Row]]]:
        """Arm, episode and its figures, means over seeds with 95 % intervals."""
        return [
            (arm, one, {r.figure: r for r in comparing.rows_of({arm: one.played}, self.trial)})
            for arm, episodes in self.episodes.items()
            for one in episodes
        ]


class TrialTrainer(Trainer):
    """Trains on courses of a test instead of drawn ones."""

    def __init__(
        self, settings: Settings, reward: Reward, seeds: Sequence[int], trial: Trial
    ) -> None:
        self._trial = trial
        super().__init__(settings, reward, seeds)

    def _drawn(self, stage: int, seed: int) -> Courses:
        first = APART * (1 + seed) + stage
        return thesis_tests.courses(self._trial, self.settings.courses, first_seed=first)


def check(arms: Sequence[str]) -> None:
    """Refuse what no training can show."""
    for arm in arms:
        if arm not in HEURISTICS and arm not in LEARNS_AS:
            raise UnknownName.among("arm", arm, comparing.ARMS)
    if not any(arm in LEARNS_AS for arm in arms):
        raise InvalidSetting(
            f"--phase training shows policies as they learn, but of --arms {','.join(arms)} none "
            f"learns anything. Add one or more of: {', '.join(LEARNS_AS)}."
        )


def episodes_of(settings: Settings) -> int:
    """How many a training is halted for."""
    return Trainer.CHUNKS * len(settings.stages)


def learn(
    trial: Trial,
    arms: Sequence[str],
    *,
    seeds: int,
    settings: Settings,
    told: Callable[[], None] = lambda: None,
) -> Learning:
    """Train what learns among the arms, playing on the way; ``told`` is called per episode."""
    check(arms)
    arms = tuple(dict.fromkeys(arms))
    short = replace(trial, cycles=LEAST_CYCLES)
    shown = replace(trial, cycles=max(trial.cycles // episodes_of(settings), LEAST_CYCLES))
    courses = [thesis_tests.courses(shown, 1, first_seed=seed) for seed in range(seeds)]
    found: dict[str, list[Episode]] = {arm: [] for arm in arms}
    for arm in arms:
        if arm in HEURISTICS:
            played = joined([play(course, HEURISTICS[arm]) for course in courses])
            found[arm].append(Episode(trained=0, epsilon=0.0, returns=(), played=played))
    for policy in dict.fromkeys(LEARNS_AS[arm] for arm in arms if arm in LEARNS_AS):
        reward = rewards.named(rewards.OF_POLICY[policy])
        trainer = TrialTrainer(settings, reward, range(1, seeds + 1), short)
        for progress in trainer.run():
            for arm in arms:
                if LEARNS_AS.get(arm) == policy:
                    found[arm].append(_episode(arm, trainer, progress, courses))
            told()
    return Learning(trial=shown, episodes=found)


def _episode(arm: str, trainer: Trainer, progress: Progress, courses: Sequence[Courses]) -> Episode:
    played = [
        play(course, _chooser(arm, trainer, seed, progress)) for seed, course in enumerate(courses)
    ]
    return Episode(
        trained=progress.step,
        epsilon=0.0 if arm == HYBRID else progress.epsilon,
        returns=progress.episodic_return,
        played=joined(played),
    )


def _chooser(arm: str, trainer: Trainer, seed: int, progress: Progress) -> Chooser:
    network = trainer.network(seed)
    if arm == HYBRID:
        return Hybrid(network)
    dice = APART * seed + progress.step  # other draws in every episode
    return Learned(arm, network, epsilon=progress.epsilon, seed=dice)


def strung(
    played: Mapping[str, Sequence[Played]], trial: Trial, names: tuple[str, str], where: str
) -> list[Plot]:
    """Used nodes and latency, one episode after the other, as two plots of these names.

    Who has one episode only learns nothing: it is repeated beside those who have more.
    """
    length = max(map(len, played.values()))
    runs = {arm: [*own] * (1 if len(own) == length else length) for arm, own in played.items()}
    changes = tuple(k * trial.steps + at for k in range(length) for at in trial.changes)
    both: tuple[tuple[str, str, Callable[[Played], F8]], ...] = (
        ("Used nodes", "nodes", lambda own: own.active),
        ("Chosen latency", "ms", lambda own: own.latency_ms),
    )
    return [
        Plot(
            name=name,
            title=f"{title} while training, {where}",
            unit=unit,
            curves={
                arm: np.concatenate([comparing.mean_of(pick(own).T) for own in episodes])
                for arm, episodes in runs.items()
            },
            changes=changes,
        )
        for name, (title, unit, pick) in zip(names, both, strict=True)
    ]


def plots_of(learning: Learning) -> list[Plot]:
    """What the thesis's figures 5.9 and 5.10 show, of these arms and this test."""
    test = learning.trial.test
    played = {arm: [one.played for one in own] for arm, own in learning.episodes.items()}
    names = (f"test{test}-training-used-nodes", f"test{test}-training-latency")
    return strung(played, learning.trial, names, f"test {test}, simulated")


def write_episodes(learning: Learning, folder: Path) -> Path:
    """``testN-training-episodes.csv``: every figure of every arm in every episode."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"test{learning.trial.test}-training-episodes.csv"
    columns = [name for figure in FIGURES for name in (figure, f"{figure} (half of 95 %)")]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["arm", "trained", "epsilon", "return", *columns])
        for arm, one, figures in learning.rows():
            values = [x for name in FIGURES for x in (figures[name].mean, figures[name].half)]
            head = [arm, one.trained, f"{one.epsilon:.3g}", _mean_return(one)]
            writer.writerow([*head, *(f"{x:.4g}" if np.isfinite(x) else "" for x in values)])
    return path


def table(learning: Learning) -> list[tuple[str, ...]]:
    """Arms by figures, an episode a line, as text."""
    lines: list[tuple[str, ...]] = [("arm", "trained", "return", *FIGURES)]
    for arm, one, figures in learning.rows():
        trained = str(one.trained) if arm in LEARNS_AS else "-"
        cells = (comparing.cell(figures[name]) for name in FIGURES)
        lines.append((arm, trained, _mean_return(one) or "-", *cells))
    return lines


def to_json(learning: Learning) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "test": learning.trial.test,
        "simulated": True,
        "phase": "training",
        "steps": learning.trial.steps,
        "notes": notes_of(learning),
        "episodes": [
            {
                "arm": arm,
                "learns": arm in LEARNS_AS,
                "trained": one.trained,
                "epsilon": one.epsilon,
                "returns": list(one.returns),
                "figures": {
                    name: {"mean": _finite(row.mean), "half_95": _finite(row.half)}
                    for name, row in figures.items()
                },
            }
            for arm, one, figures in learning.rows()
        ],
    }


def notes_of(learning: Learning) -> list[str]:
    """What a reader has to know, as sentences."""
    still = [arm for arm in learning.episodes if arm not in LEARNS_AS]
    said = [
        *learning.trial.deviations(),
        f"Trained on courses of test {learning.trial.test} with the thesis's hyper-parameters; "
        "trained is placements in each of its clusters, return is the reward's in the training.",
    ]
    if still:
        said.append(f"{', '.join(still)}: learning nothing, the same in every episode.")
    if HYBRID in learning.episodes:
        said.append("hybrid: the default score plugins with el-rl as it is then, not exploring.")
    return said


def _mean_return(one: Episode) -> str:
    return f"{np.mean(one.returns):.4g}" if one.returns else ""


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
