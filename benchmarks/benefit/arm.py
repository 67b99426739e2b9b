# SPDX-License-Identifier: Apache-2.0
"""One arm of the comparison: a scenario under a seed, with somebody (or nobody) acting on it.

Every arm runs the library's own loop with the library's own guard; only who proposes differs.
Nothing is written to disk and nothing is forked: the toll of the whole run is the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from benchmarks.benefit.chance import random_agents
from pilothouse.domain import Forecast, Snapshot, Status, Toll
from pilothouse.guard import Guard, Ledger
from pilothouse.guard.switch import Controls
from pilothouse.journal import Cycle, Record
from pilothouse.loop import Loop, Turn
from pilothouse.predict.baseline import EwmaTrend
from pilothouse.propose.registry import Registration, default_agents
from pilothouse.scenarios import load
from pilothouse.scenarios.scenario import Ranges
from pilothouse.score import Scorer
from pilothouse.settings import ScoreSettings, Settings
from pilothouse.sim.cluster import SimCluster

ArmName = Literal["nothing", "pilothouse", "random"]
ARMS: tuple[ArmName, ...] = ("nothing", "pilothouse", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one process runs."""

    scenario: str
    seed: int
    arm: ArmName
    ranges: Ranges
    cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of it."""

    job: Job
    toll: Toll
    actions: dict[str, int]  # "agent:kind" to how many had an effect, restores aside

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self.job), **asdict(self.toll), "actions": self.actions}


class Unrecorded:
    """A journal that forgets: thousands of runs of which only the toll is wanted."""

    def append(self, *items: Record, cycle: int | None = None) -> int:
        return 0

    def append_cycle(
        self, record: Cycle, snapshot: Snapshot, forecast: Forecast, *others: Record
    ) -> None:
        return None


def run(job: Job, settings: Settings | None = None) -> Run:
    """Play one arm to its end."""
    settings = settings or Settings()
    cluster = SimCluster(load(job.scenario).with_ranges(job.ranges), seed=job.seed)
    actions: Counter[str] = Counter()
    if job.arm == "nothing":
        cluster.advance(job.cycles * settings.run.cycle_seconds)
    else:
        agents = (
            default_agents(settings)
            if job.arm == "pilothouse"
            else random_agents(settings, job.seed)
        )
        loop = loop_over(cluster, agents, settings, run_id=f"{job.scenario}/{job.seed}/{job.arm}")
        for cycle in range(1, job.cycles + 1):
            cluster.advance(settings.run.cycle_seconds)
            actions.update(executed(loop.turn(cycle, Controls(), lambda: False)))
    return Run(job=job, toll=cluster.toll(), actions=dict(sorted(actions.items())))


def loop_over(
    cluster: SimCluster,
    agents: Sequence[Registration],
    settings: Settings,
    *,
    run_id: str,
    score: ScoreSettings | None = None,
) -> Loop:
    """The library's loop over this cluster, unrecorded; scored only where asked for."""
    return Loop(
        cluster=cluster,
        journal=Unrecorded(),
        forecaster=EwmaTrend(settings.forecast),
        agents=agents,
        guard=Guard(settings, agents),
        ledger=Ledger(settings.guard),
        scorer=Scorer(score or ScoreSettings(forks=False)),
        settings=settings,
        run_id=run_id,
    )


def executed(turn: Turn) -> list[str]:
    """Agent and kind of every action of this cycle that had an effect."""
    done = {r.intent.rpartition(".")[0] for r in turn.receipts if r.status is Status.DONE}
    return [f"{a.agent}:{a.kind}" for a in turn.decision.actions if a.id in done and not a.restores]
