# SPDX-License-Identifier: Apache-2.0
"""What training and comparing share when a real cluster, or what one recorded, is involved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli.output import print_json, progress

if TYPE_CHECKING:
    from pilothouse.lab import Lab
    from pilothouse.learn.placement.cluster import Place
    from pilothouse.learn.placement.rewards import Reward
    from pilothouse.learn.placement.trainer import Settings
    from pilothouse.policy import Policy

NAMESPACE = "pilothouse-placement"
PROBE_PORT = 10271
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
