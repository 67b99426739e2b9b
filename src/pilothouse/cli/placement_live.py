# SPDX-License-Identifier: Apache-2.0
"""What training and comparing share when a real cluster, or what one recorded, is involved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli.output import print_json, progress

if TYPE_CHECKING:
    from pilothouse.lab import Lab
    from pilothouse.learn.placement.cluster import Cluster, Place
    from pilothouse.learn.placement.comparing import Comparison
    from pilothouse.learn.placement.comparing_live import LiveArm
    from pilothouse.learn.placement.rewards import Reward
    from pilothouse.learn.placement.thesis_tests import Trial
    from pilothouse.learn.placement.trainer import Settings
    from pilothouse.policy import Policy

NAMESPACE = "pilothouse-placement"
PROBE_PORT = 10271
KNOWN_SECONDS = 15.0  # a machine full of other work measures late
NOISE_MS = 20.0
TABLE_SECONDS = 4.0  # the scorer asks probes every two seconds, the plugin asks it every second
IMAGE = "registry.k8s.io/pause:3.10"
NamespaceOption = Annotated[
    str, typer.Option(help="With --live: its own namespace; all pods in it are ours.")
]
ImageOption = Annotated[
    str, typer.Option(help=f"With --live: what the pods run; {IMAGE}, or the lab's own.")
]
ProbePortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="With --live: of the latency probes; 0: none.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be trained, and where it goes."""

    policy: str
    start: str | None
    seed: int
    out: Path


def lab_of(kubeconfig: Path) -> Lab | None:
    """The lab, when this is its kubeconfig."""
    from pilothouse.home import home
    from pilothouse.lab import Lab

    lab = Lab(home() / "lab")
    return lab if kubeconfig.resolve() == lab.layout.kubeconfig.resolve() else None


def place_of(kubeconfig: Path, namespace: str, image: str, probe_port: int) -> Place:
    """Where pods are made; the lab's workers can pull nothing and have an image of their own."""
    from pilothouse.lab.image import PAUSE_IMAGE
    from pilothouse.learn.placement.cluster import Place

    usual = PAUSE_IMAGE if lab_of(kubeconfig) is not None else IMAGE
    return Place(
        kubeconfig=kubeconfig, namespace=namespace, image=image or usual, probe_port=probe_port
    )


def practice(
    wish: Wish,
    settings: Settings,
    reward: Reward,
    place: Place,
    *,
    steps: int | None,
    as_json: bool,
) -> None:
    """Train by placing real pods."""
    from pilothouse.learn.extras import need

    need("gymnasium")
    from pilothouse.learn.placement.cluster import Cluster
    from pilothouse.learn.placement.environment import PlacePods
    from pilothouse.learn.placement.practice import one_at_a_time
    from pilothouse.learn.placement.practice import practice as train

    start = _start(wish.start)
    cluster = Cluster(place)
    nodes = len(cluster.look().machines)
    cluster.close()
    resolved = one_at_a_time(settings, steps)
    env = PlacePods(max_nodes=nodes, reward=reward, backend="live", cluster=place)
    try:
        with progress("Placing", quiet=as_json, total=resolved.steps) as advance:
            made = train(
                wish.policy,
                resolved,
                env,
                reward,
                seed=wish.seed,
                out=wish.out,
                start=start,
                told=advance,
            )
    finally:
        env.close()
    if as_json:
        print_json(
            {
                "policy": wish.policy,
                "live": True,
                "path": str(made.stem),
                "nodes": nodes,
                "placements": made.placements,
                "updates": made.updates,
                "versions": list(made.versions),
                "returns": list(made.returns),
                "seconds": made.seconds,
            }
        )
        return
    typer.echo(
        f"Placed {made.placements} real pods on {nodes} nodes in {made.seconds:.0f} s, "
        f"{made.updates} updates, {len(made.returns)} episodes."
    )
    typer.echo(
        f"Policy  {made.stem}.json  (served by: pilothouse scorer --policy {made.stem}.json)"
    )


def compare_live(
    trial: Trial, arms: tuple[str, ...], place: Place, *, seeds: int, quiet: bool
) -> Comparison:
    """Play the arms on a real cluster; in the lab their schedulers and latencies are set."""
    from pilothouse.learn.placement import comparing_live
    from pilothouse.learn.placement.cluster import Cluster

    lab = lab_of(place.kubeconfig)
    enter = _entering(lab, arms)
    cluster = Cluster(place)
    try:
        with progress("Placing", quiet=quiet, total=len(arms) * seeds * trial.steps) as advance:
            return comparing_live.compare_live(
                trial,
                arms,
                cluster,
                seeds=seeds,
                enter=enter,
                set_latency=None if lab is None else _mover(lab, cluster),
                told=advance,
            )
    finally:
        cluster.close()


def _entering(lab: Lab | None, arms: tuple[str, ...]) -> Callable[[str], LiveArm]:
    """How an arm takes over; a bad name fails before anything is placed."""
    from pilothouse.errors import UnknownName
    from pilothouse.lab import arms as schedulers
    from pilothouse.learn.placement.comparing_live import BY_HAND, LiveArm, by_hand

    known = (*BY_HAND, *schedulers.ARMS)
    for name in arms:
        if lab is not None and name not in known:
            raise UnknownName.among("arm", name, known)

    def enter(name: str) -> LiveArm:
        if name in BY_HAND:
            return by_hand(name)
        if lab is not None:
            return LiveArm(words=schedulers.use(lab, name).words)
        # Outside the lab schedulers are not ours to change: an arm is one that runs there.
        scheduler = "default-scheduler" if name == "default" else name
        return LiveArm(words=f"scheduler {scheduler} of the cluster", scheduler=scheduler)

    return enter


def _mover(lab: Lab, cluster: Cluster) -> Callable[[Mapping[str, float]], None]:
    """Puts the lab's users at a distance, and waits until probes and scheduler know."""
    import time

    def move(wanted: Mapping[str, float]) -> None:
        lab.set_latency(dict(wanted))
        deadline = time.monotonic() + KNOWN_SECONDS
        while time.monotonic() < deadline:
            seen = cluster.look().latency_ms
            if all(seen.get(node, 0.0) >= ms for node, ms in wanted.items()) and all(
                seen[node] <= ms + NOISE_MS for node, ms in wanted.items()
            ):
                break
            time.sleep(0.2)
        time.sleep(TABLE_SECONDS)

    return move


def fine_tune(
    wish: Wish, settings: Settings, reward: Reward, source: Path, *, as_json: bool
) -> None:
    """Train on what a scheduler recorded; promote only what improved."""
    from pilothouse.learn.placement import recorded
    from pilothouse.learn.placement.finetune import fine_tune as tune
    from pilothouse.policy import shipped

    frozen = source.suffix == ".npz"
    binds = recorded.thaw(source) if frozen else recorded.from_journal(source)
    start = _start(wish.start) or shipped(wish.policy)
    with progress("Fine-tuning", quiet=as_json) as advance:
        made = tune(
            wish.policy,
            settings,
            reward,
            binds,
            start=start,
            seed=wish.seed,
            out=wish.out,
            told=advance,
        )
    if as_json:
        print_json(made.to_json())
        return
    word = "Promoted" if made.promoted else "Not promoted"
    typer.echo(f"{word}: {made.why} ({made.binds} recorded binds, {made.updates} updates).")
    typer.echo(f"Policy  {made.stem}.json")


def _start(given: str | None) -> Policy | None:
    from pilothouse.learn.placement.reporting import find_policy

    return None if given is None else find_policy(given)
