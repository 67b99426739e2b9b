# SPDX-License-Identifier: Apache-2.0
"""How fast placement trains, against a double DQN in PyTorch.

``python -m benchmarks.training_speed.run`` trains EE in both arms on the same courses with the same
network, batch, updates per placement and schedules, on 3 and on up to 32 nodes, alternating, each
run in a process of its own, each round with its own seed. Both ends are judged alike: the networks
are played greedily on held-out courses. Over the rounds, paired by seed, the peer's return may not
be significantly above ours, in the mean by no more than 2 % of an untrained network's loss, and
surely not by 5 %. The simulator alone, the learner alone and compiling are timed apart; the peer
gets one thread or two, whichever is faster. PyTorch is looked for in the interpreter given by
``--peer`` (Debian: ``apt-get install python3-torch``). Then the thesis preset is trained from
nothing, three seeds of each policy, compiling included, and held to the lines of three nodes in the
median. Prints the tables, writes results.json and ends with 1 when a line fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.intervals import t95
from pilothouse.learn.placement.judging import KINDS, Line
from pilothouse.learn.placement.presets import FAST, THESIS, Settings

RESULTS = Path(__file__).with_name("results.json")
ROOT = Path(__file__).parents[2]
PEER = "/usr/bin/python3"
HELD_OUT, HELD_OUT_COURSES = 600_000, 64
SEEDS_TOGETHER = 5
THESIS_SECONDS = 30.0
THESIS_SEEDS = (1, 2, 3)
FEWEST_ROUNDS = 3
EQUAL_RETURN, SURELY_EQUAL = 0.02, 0.05  # of what an untrained network loses
LEAST_FASTER = {3: 5.0, 32: 1.3}
STEPS = {3: 8_000, 32: 3_000}


def settings_of(nodes: int, steps: int) -> Settings:
    """One stage, ten clusters, an update for every ten placements, the first weights drawn as
    PyTorch draws them; the rest as the fast preset.
    """
    return replace(
        FAST,
        steps=steps,
        envs=10,
        updates=1,
        buffer=10_000,
        learning_starts=30,
        target_every=200,
        stages=(nodes,),
        stage_shares=(1.0,),
        fewest_nodes=min(nodes, 3),
        initialization="uniform",
    )


# ---- our arm, in its own process ----


def ours(nodes: int, steps: int, seed: int, seeds: int) -> dict[str, Any]:
    """Train so many seeds from this one on and tell; runs inside the child."""
    from pilothouse.learn.placement.rewards import named
    from pilothouse.learn.placement.trainer import Trainer

    settings = settings_of(nodes, steps)
    began, cpu = time.perf_counter(), time.process_time()
    trainer = Trainer(settings, named("packing"), range(seed, seed + seeds))
    for _ in trainer.run():
        pass
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "compile": trainer.compile_seconds,
        **_parts(trainer),
        "returned": [returned(trainer.network(k), nodes) for k in range(seeds)],
    }


def _parts(trainer: Any) -> dict[str, float]:
    """Seconds per step of the simulator alone and per update of the learner alone."""
    import jax

    from pilothouse.learn.placement import trainer as inside
    from pilothouse.learn.placement import world

    s, many = trainer.settings, 500
    courses, carry = jax.tree.map(lambda x: x[0], (trainer._courses, trainer._carry))

    def played(key: Any, envs: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            key, envs = state
            key, own, other = jax.random.split(key, 3)
            sight = world.see(courses, envs)
            lots = jax.random.uniform(own, sight.valid.shape)
            envs, _placed = world.place(courses, envs, sight, inside.best(lots, sight.feasible))
            over = envs.step >= courses["pod_cpu"].shape[1] - 1
            fresh = jax.random.randint(other, (s.envs,), 0, s.courses)
            return (key, world.restart(courses, envs, over, fresh)), None

        return jax.lax.scan(step, (key, envs), length=many)[0]

    def learned(carry: Any) -> Any:
        return jax.lax.scan(lambda c, _: inside._update(s, c), carry, length=many)[0].weights

    return {
        "simulator": _timed(jax.jit(played), carry.key, carry.envs) / many,
        "learner": _timed(jax.jit(learned), carry) / many,
    }


def _timed(work: Any, *arguments: Any) -> float:
    import jax

    jax.block_until_ready(work(*arguments))
    began = time.perf_counter()
    jax.block_until_ready(work(*arguments))
    return time.perf_counter() - began


def returned(network: Any, nodes: int) -> float:
    """What a network's greedy placements on held-out courses are worth, per course."""
    from pilothouse.learn.placement.chooser import Learned
    from pilothouse.learn.placement.fleet import Fleet
    from pilothouse.learn.placement.rewards import named, worth

    family = Family(nodes=(min(nodes, 3), nodes), steps=4 * nodes)
    fleet = Fleet(draw(family, seed=HELD_OUT, count=HELD_OUT_COURSES))
    chooser, reward, total = Learned("x", network), named("packing"), 0.0
    while (fleet.step_number < fleet.courses.steps).any():
        total += float(worth(reward, fleet.place(chooser.choose(fleet)).placed)[0].sum())
    return total / fleet.courses.count


# ---- the peer's arm ----


def peers(python: str, nodes: int, steps: int, seed: int, threads: int) -> dict[str, Any]:
    """One training of the PyTorch peer, and what its network returns under our play."""
    from pilothouse.learn.placement import world
    from pilothouse.learn.placement.trainer import SCALE
    from pilothouse.policy import Network
    from pilothouse.policy.network import Layer

    s = settings_of(nodes, steps)
    family = replace(
        s.family, nodes=(min(s.fewest_nodes, nodes), nodes), steps=s.course_steps_per_node * nodes
    )
    courses = world.load(draw(family, seed=1_000_003 * seed, count=s.courses))
    told = ("envs", "batch", "learning_rate", "learning_rate_end", "gamma", "buffer")
    told += ("learning_starts", "target_every", "exploration_fraction", "epsilon_end", "steps")
    job: dict[str, Any] = {name: getattr(s, name) for name in told}
    job |= {"width": s.encoder[0], "scale": SCALE.tolist()}
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "job.npz", Path(folder) / "answer.npz"
        np.savez(asked, job=np.array(json.dumps(job)), **courses)
        words = [python, "-m", "benchmarks.peers.torch_dqn", str(asked), str(answered)]
        words += ["--threads", str(threads), "--seed", str(seed)]
        plain = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        subprocess.run(words, cwd=ROOT, check=True, env=plain)
        with np.load(answered) as stored:
            tensors = {name: stored[name] for name in stored.files}
    answer: dict[str, Any] = json.loads(str(tensors.pop("told")))

    def layers(part: str) -> tuple[Layer, ...]:
        own = [k for k in range(8) if f"{part}.{k}.weight" in tensors]
        return tuple(Layer(tensors[f"{part}.{k}.weight"], tensors[f"{part}.{k}.bias"]) for k in own)

    network = Network(encoder=layers("encoder"), head=layers("head"), scale=SCALE)
    return answer | {"returned": [returned(network, nodes)], "threads": threads}


# ---- together ----


def child(*words: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.training_speed.run", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def thesis_preset(policy: str, seed: int) -> dict[str, Any]:
    """The thesis preset from nothing: seconds with compiling, and the three-node lines."""
    from pilothouse.learn.placement import judging, rewards
    from pilothouse.learn.placement.chooser import Learned
    from pilothouse.learn.placement.trainer import Trainer

    began = time.perf_counter()
    trainer = Trainer(THESIS, rewards.named(rewards.OF_POLICY[policy]), (seed,))
    for _ in trainer.run():
        pass
    seconds = time.perf_counter() - began
    exam = judging.exam((3, 3), seed=500_000, count=48, steps=30)
    lines = judging.judge(policy, Learned(policy, trainer.network()), exam)
    return {"seed": seed, "seconds": seconds, "lines": [line.to_json() for line in lines]}


def thesis_lines(policy: str, runs: list[dict[str, Any]]) -> list[Line]:
    """The slowest seed's time, and the median seed's quality."""
    said = f"thesis preset, {policy}"
    seconds = max(run["seconds"] for run in runs)
    lines = [
        Line(
            what=f"{said}: seconds of the slowest seed, compiling included",
            value=seconds,
            bound=THESIS_SECONDS,
        )
    ]
    for place, line in enumerate(runs[0]["lines"]):
        values = [run["lines"][place]["value"] for run in runs]
        lines.append(
            Line(
                what=f"{said}: {line['what']}, median of {len(runs)} seeds",
                value=median(values),
                bound=line["bound"],
                at_least=line["at_least"],
            )
        )
    return lines


def untrained(nodes: int) -> float:
    from pilothouse.learn.placement.rewards import named
    from pilothouse.learn.placement.trainer import Trainer

    trainer = Trainer(settings_of(nodes, 100), named("packing"), range(90, 94))
    return float(np.mean([returned(trainer.network(k), nodes) for k in range(4)]))


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median of the rounds, and what they lie between."""
    return {"median": median(values), "least": min(values), "most": max(values)}


def equal_lines(
    where: str, ours: Sequence[float], peer: Sequence[float], loss: float
) -> list[Line]:
    """Is the peer's return above ours? By seed, in shares of what an untrained network loses."""
    gap = (np.array(peer) - np.array(ours)) / loss
    error = t95(len(gap)) * gap.std(ddof=1) / np.sqrt(len(gap))
    said = f"{where}: the peer's final return above ours, share of an untrained loss"
    return [
        Line(what=f"{said}, mean of {len(gap)} seeds", value=float(gap.mean()), bound=EQUAL_RETURN),
        Line(
            what=f"{said}, lower 95 % bound: not significantly",
            value=float(gap.mean() - error),
            bound=0.0,
        ),
        Line(
            what=f"{said}, upper 95 % bound: surely not by much",
            value=float(gap.mean() + error),
            bound=SURELY_EQUAL,
        ),
    ]


def measured(
    python: str, nodes: int, rounds: int, share: float
) -> tuple[dict[str, Any], list[Line]]:
    """Alternate the arms; the peer gets one thread or two, whichever is faster."""
    steps = round(STEPS[nodes] * share)
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    tries = {t: peers(python, nodes, max(steps // 8, 200), 1, t) for t in (1, 2)}
    threads = min(tries, key=lambda t: tries[t]["seconds"])
    for seed in range(1, 1 + rounds):
        runs["peer"].append(peers(python, nodes, steps, seed, threads))
        runs["ours"].append(child("--child", "ours", nodes, steps, seed, 1))
    together = child("--child", "ours", nodes, steps, 1, SEEDS_TOGETHER)
    loss = abs(untrained(nodes))
    seconds = {
        "ours": [run["seconds"] - run["compile"] for run in runs["ours"]],
        "peer": [run["seconds"] for run in runs["peer"]],
    }
    faster = [peer / own for peer, own in zip(seconds["peer"], seconds["ours"], strict=True)]
    peer_s = median(seconds["peer"])
    returns = {arm: [run["returned"][0] for run in own] for arm, own in runs.items()}
    where = "3 nodes" if nodes == 3 else f"up to {nodes} nodes"
    lines = [
        Line(
            what=f"{where}: times as fast as PyTorch, end to end, compiling apart",
            value=median(faster),
            bound=LEAST_FASTER[nodes],
            at_least=True,
        ),
        *equal_lines(where, returns["ours"], returns["peer"], loss),
        Line(
            what=f"{where}: five seeds together, compiling included, over two of the peer's",
            value=together["seconds"] / (2 * peer_s),
            bound=1.0,
        ),
    ]
    found = {
        "nodes": nodes,
        "steps": steps,
        "rounds": rounds,
        "peer threads": threads,
        "times as fast": spread(faster),
        "seconds": {arm: spread(own) for arm, own in seconds.items()}
        | {"five of ours": together["seconds"]},
        "cpu seconds": {arm: spread([r["cpu_seconds"] for r in own]) for arm, own in runs.items()},
        "compile": spread([run["compile"] for run in runs["ours"]]),
        "with compiling": peer_s / median(run["seconds"] for run in runs["ours"]),
        "milliseconds": {
            arm: {p: spread([1e3 * r[p] for r in own]) for p in ("simulator", "learner")}
            for arm, own in runs.items()
        },
        "returns by seed": returns | {"five of ours": together["returned"]},
        "untrained": -loss,
        "torch": runs["peer"][0]["torch"],
    }
    return found, lines


def has_torch(python: str) -> bool:
    probe = [python, "-c", "import torch"]
    try:
        return subprocess.run(probe, capture_output=True, cwd="/").returncode == 0
    except OSError:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=PEER, help="interpreter with PyTorch")
    parser.add_argument("--rounds", type=int, default=5, help="seeds of each arm")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps; below 1 is a try")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        what, *numbers = arguments.child
        if what == "thesis":
            answer = thesis_preset(numbers[0], int(numbers[1]))
        else:
            answer = ours(*map(int, numbers))
        print(json.dumps(answer))
        return 0
    if arguments.rounds < FEWEST_ROUNDS:
        parser.error(f"an interval over seeds needs {FEWEST_ROUNDS} rounds or more")
    if not has_torch(arguments.peer):
        print(f"{arguments.peer} has no PyTorch: apt-get install python3-torch, or name another.")
        return 2
    results: dict[str, Any] = {"date": str(date.today()), "load": os.getloadavg()[0], "sizes": []}
    lines: list[Line] = []
    for nodes in STEPS:
        found, own = measured(arguments.peer, nodes, arguments.rounds, arguments.share)
        results["sizes"].append(found)
        lines += own
    for policy in KINDS:
        told = [child("--child", "thesis", policy, seed) for seed in THESIS_SEEDS]
        results[f"thesis preset, {policy}"] = told
        lines += thesis_lines(policy, told)
    results["lines"] = [line.to_json() for line in lines]
    results["load after"] = os.getloadavg()[0]
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    show(results, lines)
    return 0 if all(line.holds for line in lines) else 1


def show(results: dict[str, Any], lines: list[Line]) -> None:
    """Medians with what the rounds lie between, then the lines."""
    print("| nodes | | ours | PyTorch |")
    print("|--:|---|--:|--:|")
    for found in results["sizes"]:
        for name, unit in (("seconds", "s"), ("cpu seconds", "s of CPU")):
            _show_row(found["nodes"], f"training, {unit}", found[name])
        for part in ("simulator", "learner"):
            own = {arm: parts[part] for arm, parts in found["milliseconds"].items()}
            _show_row(found["nodes"], f"{part} alone, ms", own)
        compiling = f"{found['compile']['median']:.3g} s, then {found['with compiling']:.2g} times"
        print(f"| {found['nodes']} | compiling, and as fast with it | {compiling} | |")
        returns = {arm: spread(found["returns by seed"][arm]) for arm in ("ours", "peer")}
        _show_row(found["nodes"], f"final return (untrained {found['untrained']:.2f})", returns)
    for line in lines:
        sign = ">=" if line.at_least else "<="
        mark = "holds" if line.holds else "FAILS"
        print(f"{mark}  {line.what}: {line.value:.4f} ({sign} {line.bound})")


def _show_row(nodes: int, what: str, arms: dict[str, Any]) -> None:
    cells = [
        f"{own['median']:.3g} ({own['least']:.3g} to {own['most']:.3g})"
        for own in (arms["ours"], arms["peer"])
    ]
    print(f"| {nodes} | {what} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    sys.exit(main())
