# SPDX-License-Identifier: Apache-2.0
"""The thesis's figures 5.1 to 5.12, simulated: one CSV and one PNG each, a page, the versions.

5.1-5.4 show pods per node under EE and LB, 5.5-5.8 under EL-RL, 5.9 and 5.10 compare policies
while they are being trained (each placement by the network as it was then, exploration included),
5.11 and 5.12 the trained ones with the default scheduler. Cycles and pods are a trial's; the
figures choose the test themselves.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pilothouse import __version__
from pilothouse.learn.placement import comparing, rewards, thesis_tests
from pilothouse.learn.placement.chooser import HEURISTICS, Chooser, Learned
from pilothouse.learn.placement.comparing import LEARNED, Comparison, Plot
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.playing import F8, Played, play
from pilothouse.learn.placement.thesis_tests import Trial
from pilothouse.policy import Policy, shipped

EL_RL_SHARE = 20 / 30  # of the pods is what the thesis starts its second test of EL-RL with


def reproduce(
    folder: Path,
    trial: Trial,
    *,
    seeds: int = 5,
    find: Callable[[str], Policy] = shipped,
    told: Callable[[], None] = lambda: None,
) -> list[Path]:
    """Write all twelve; every written path, the page last."""
    first, second = (replace(trial, test=test) for test in (1, 2))
    written: list[Path] = []

    def keep(plot: Plot) -> None:
        written.extend(comparing.write_plot(plot, folder))
        told()

    learned = {name: Learned(name, find(name).network) for name in LEARNED}
    for number, name, own in (
        (1, "ee", first),
        (2, "ee", second),
        (3, "lb", first),
        (4, "lb", second),
    ):
        keep(_per_node(f"figure-5-{number:02d}", learned[name], own))
    for node in range(thesis_tests.NODES):
        keep(_nearest(f"figure-5-{5 + node:02d}", learned["el-rl"], node, first))
    fewer = max(round(EL_RL_SHARE * trial.pods), 1)
    keep(_per_node("figure-5-08", learned["el-rl"], replace(second, pods=fewer)))
    for plot in training_plots(trial, seeds):
        keep(plot)
    tables = [_tested(own, seeds, find) for own in (first, second)]
    for number, plot in zip((11, 12), comparing.plots_of(tables[1]), strict=True):
        keep(replace(plot, name=f"figure-5-{number}"))
    made_by = versions(find)
    listed = folder / "versions.json"
    listed.write_text(json.dumps(made_by, indent=1) + "\n", encoding="utf-8")
    words = ", ".join(f"{name} {version}" for name, version in made_by.items())
    notes = (
        f"Simulated; {trial.pods} pods at once, {trial.cycles} cycles of test 1; figures 5.9 and "
        f"5.10 with the thesis's hyper-parameters. Made by {words}."
    )
    page = comparing.write_page(folder, "The thesis's figures", tables, notes)
    return [*written, listed, page]


def versions(find: Callable[[str], Policy] = shipped) -> dict[str, str]:
    """What made the figures: the program, its libraries, and the policies by their hashes."""
    import gymnasium
    import jax
    import matplotlib

    return {
        "pilothouse": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": jax.__version__,
        "gymnasium": gymnasium.__version__,
        "matplotlib": matplotlib.__version__,
    } | {f"policy {name}": find(name).version for name in LEARNED}


def _tested(trial: Trial, seeds: int, find: Callable[[str], Policy]) -> Comparison:
    arms = ("default", "most-allocated", "heuristic", *LEARNED)
    return comparing.compare(trial, arms, seeds=seeds, find=find)


def _pods_per_node(chooser: Chooser, trial: Trial, seed: int) -> dict[str, F8]:
    fleet = Fleet(thesis_tests.courses(trial, 1, first_seed=seed))
    rows = []
    while fleet.step_number[0] < trial.steps:
        step = fleet.place(chooser.choose(fleet))
        rows.append(step.placed.counted_after[0].astype(np.float64))
    table = np.stack(rows)
    return {f"node {n}": table[:, n] for n in range(thesis_tests.NODES)}


def _per_node(name: str, chooser: Chooser, trial: Trial) -> Plot:
    return Plot(
        name=name,
        title=f"{chooser.name}: pods per node, test {trial.test}, simulated",
        unit="pods",
        curves=_pods_per_node(chooser, trial, seed=1),
        changes=trial.changes,
    )


def _nearest(name: str, chooser: Chooser, node: int, trial: Trial) -> Plot:
    """Test 1 on one latency layout: this node is the nearest in the first third."""
    seed = next(
        s
        for s in range(1000)
        if thesis_tests.courses(Trial(), 1, first_seed=s).latency_ms[0, 0].argmin() == node
    )
    return Plot(
        name=name,
        title=f"{chooser.name}: pods per node, test 1, node {node} nearest at first, simulated",
        unit="pods",
        curves=_pods_per_node(chooser, trial, seed=seed),
        changes=trial.changes,
    )


def training_plots(trial: Trial, seeds: int) -> list[Plot]:
    """5.9 and 5.10: used nodes and latency while the thesis preset is being trained.

    The trial's cycles are spread over the training: so many with the network of each chunk.
    """
    from pilothouse.learn.placement.learning import LEAST_CYCLES, strung
    from pilothouse.learn.placement.trainer import THESIS, Trainer

    share = trial.cycles // (Trainer.CHUNKS * len(THESIS.stages))
    trial = replace(trial, test=1, cycles=max(share, LEAST_CYCLES))
    courses = thesis_tests.courses(trial, seeds)
    played: dict[str, list[Played]] = {"default": [play(courses, HEURISTICS["default"])]}
    for policy in LEARNED:
        trainer = Trainer(THESIS, rewards.named(rewards.OF_POLICY[policy]), (1,))
        played[policy] = [
            play(courses, Learned(policy, trainer.network(), epsilon=progress.epsilon))
            for progress in trainer.run()
        ]
    return strung(played, trial, ("figure-5-09", "figure-5-10"), "simulated")
