# SPDX-License-Identifier: Apache-2.0
"""What training and comparing share when a real cluster, or what one recorded, is involved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli import probe
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
PROBE_PORT = probe.PORT
ONLY_LIVE = ("namespace", "image", "probe_port")  # options
KNOWN_SECONDS = 15.0  # then it goes on: a machine full of other work never measures well
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
    typer.echo(f"Policy  {made.stem}.json")
    typer.echo(f"A scorer serves it as it changes: pilothouse scorer --policy {made.stem}.json")


def compare_live(
    trial: Trial, arms: tuple[str, ...], place: Place, *, seeds: int, quiet: bool
) -> Comparison:
    """Play the arms on a real cluster; in the lab their schedulers and latencies are set."""
    from pilothouse.errors import InvalidSetting, UnknownName
    from pilothouse.lab import arms as schedulers
    from pilothouse.learn.placement import comparing_live
    from pilothouse.learn.placement.cluster import Cluster

    lab = lab_of(place.kubeconfig)
    if trial.nodes_move and lab is None:
        raise InvalidSetting(
            "--nodes-move takes a node away and brings another, and only the lab's workers are "
            f"ours to do that to, but {place.kubeconfig} is not the lab's kubeconfig."
        )
    known = tuple(dict.fromkeys((*comparing_live.BY_HAND, *schedulers.ARMS)))
    for name in arms:  # a bad name fails before anything is placed
        if lab is not None and name not in known:
            raise UnknownName.among("arm", name, known)
    cluster = Cluster(place)
    stage = None if lab is None else LabStage(lab, cluster)
    try:
        with progress("Placing", quiet=quiet, total=len(arms) * seeds * trial.steps) as advance:
            return comparing_live.compare_live(
                trial,
                arms,
                cluster,
                seeds=seeds,
                enter=comparing_live.as_it_is if stage is None else stage.enter,
                set_latency=None if stage is None else stage.move,
                nodes=stage,
                told=advance,
            )
    finally:
        cluster.close()
        if stage is not None and trial.nodes_move:
            stage.restore()


class LabStage:
    """The lab, made ready for one arm after the other."""

    def __init__(self, lab: Lab, cluster: Cluster) -> None:
        self._lab, self._cluster = lab, cluster
        self._asks_scorer = False

    def enter(self, name: str) -> LiveArm:
        """Make this arm the lab's scheduler, or let a rule without a profile bind by hand."""
        from pilothouse.lab import arms as schedulers
        from pilothouse.learn.placement.comparing_live import LiveArm, by_hand

        if name not in schedulers.ARMS:
            self._asks_scorer = False
            return by_hand(name)
        arm = schedulers.use(self._lab, name)
        self._asks_scorer = bool(arm.policy)
        return LiveArm(words=arm.words)

    def move(self, wanted: Mapping[str, float]) -> None:
        """Put users at a distance, and wait until probes and scheduler know."""
        import time

        self._lab.set_latency(dict(wanted))
        deadline = time.monotonic() + KNOWN_SECONDS
        while time.monotonic() < deadline and not self._is_known(wanted):
            time.sleep(0.2)
        if self._asks_scorer:
            time.sleep(TABLE_SECONDS)

    def gather(self) -> None:
        """All workers but the last, which joins later."""
        from pilothouse.lab import arms as schedulers

        schedulers.keep(self._lab, [one.name for one in self._lab.workers()][:-1])

    def swap(self) -> None:
        """The first worker is lost, the last one joins; the scheduler has to notice by itself."""
        import time

        from pilothouse.lab import arms as schedulers

        schedulers.keep(self._lab, [one.name for one in self._lab.workers()][1:])
        time.sleep(TABLE_SECONDS)

    def restore(self) -> None:
        """All workers, as the lab was."""
        from pilothouse.lab import arms as schedulers

        schedulers.keep(self._lab, [one.name for one in self._lab.workers()])

    def _is_known(self, wanted: Mapping[str, float]) -> bool:
        seen = self._cluster.look().latency_ms
        return all(
            wanted.get(n, 0.0) <= ms <= wanted.get(n, 0.0) + NOISE_MS for n, ms in seen.items()
        )


def fine_tune(
    wish: Wish, settings: Settings, reward: Reward, source: Path, *, as_json: bool
) -> None:
    """Train on what a scheduler recorded; promote only what improved."""
    from pilothouse.learn.placement import recorded
    from pilothouse.learn.placement.finetune import fine_tune as tune

    frozen = source.suffix == ".npz"
    binds = recorded.thaw(source) if frozen else recorded.from_journal(source)
    start = _start(wish.start) or _usual_start(wish, reward)
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


def _usual_start(wish: Wish, reward: Reward) -> Policy:
    """The shipped policy of this name; one of one's own goes on from where it is."""
    from pilothouse.errors import InvalidSetting
    from pilothouse.learn.placement.finetune import in_use
    from pilothouse.learn.placement.placed import beside_cpu
    from pilothouse.policy import shipped, shipped_names

    if wish.policy in shipped_names():
        return shipped(wish.policy)
    found = in_use(wish.policy, wish.out, sees=beside_cpu(reward.resource))
    if found is None:
        raise InvalidSetting(
            f"No policy {wish.policy} is shipped and {wish.out} holds none, so there is nothing to "
            "fine-tune. Name the policy to begin with: --start FILE."
        )
    return found


def _start(given: str | None) -> Policy | None:
    from pilothouse.learn.placement.reporting import find_policy

    return None if given is None else find_policy(given)
