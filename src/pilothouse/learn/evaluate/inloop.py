# SPDX-License-Identifier: Apache-2.0
"""Does a forecaster help the loop? The same clusters under the same seeds, one arm per forecaster.

Arrivals and faults are keyed by the seed, so both arms face the identical day. What counts is what
the cluster says afterwards: seconds of failed pods, broken objectives, and how many actions it
took. Results are kept per seed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.domain import Forecast, Snapshot, horizon_column
from pilothouse.features.live import node_failures
from pilothouse.journal import Journal
from pilothouse.predict import Forecaster, with_thresholds
from pilothouse.run import Runner
from pilothouse.scenarios import load as load_scenario
from pilothouse.settings import Settings
from pilothouse.sim.cluster import SimCluster

# Declared before anything was tuned: no forecaster trains on them, no threshold is chosen on them.
# Their held-out ranges are drawn; those lie inside what ``weary-nodes``, a training family, shows.
NEW_FAMILIES = ("flaky-nodes", "failing-rack")
TUNING_FAMILIES = ("weary-nodes", "node-degradation")
FORESEEN_SECONDS = 900
TUNING_SEEDS = tuple(range(300, 306))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One forecaster on one day."""

    forecaster: str
    scenario: str
    seed: int
    failed_pod_seconds: float
    violation_seconds: float
    energy_joules: float  # modelled
    actions: int
    abstained: float  # share of snapshots handed to the baseline
    deaths: int  # nodes that died
    crossed: dict[str, int]  # of those, whose risk was at each threshold within 15 min before
    lead_seconds: tuple[int, ...]  # from the first crossing of the moving threshold to the death


class Foresight:
    """How early each death was foreseen, by the thresholds Safety acts on."""

    def __init__(self, settings: Settings) -> None:
        names = ("throttle_risk", "migrate_risk", "replicate_risk")
        self._levels = {name: 1000 * getattr(settings.safety, name) for name in names}
        self._first: dict[str, dict[int, list[int]]] = {name: {} for name in names}
        self._before: Snapshot | None = None
        self.deaths = 0
        self.crossed = dict.fromkeys(names, 0)
        self.leads: list[int] = []

    def see(self, snapshot: Snapshot, forecast: Forecast) -> None:
        now = snapshot.taken_seconds
        if self._before is not None:
            for row in node_failures(self._before, snapshot).tolist():
                self._count(int(snapshot.nodes.uid[row]), now)
        self._before = snapshot
        table = forecast.node_risk
        risk = np.where(table.abstains == 0, table.risk_permille[:, horizon_column(900)], 0)
        alive = snapshot.nodes.ready == 1  # that a node does not answer is no forecast
        for name, level in self._levels.items():
            for uid in table.uid[(risk >= level) & alive].tolist():
                self._first[name].setdefault(uid, []).append(now)

    def _count(self, uid: int, now: int) -> None:
        self.deaths += 1
        for name, times in self._first.items():
            recent = [at for at in times.pop(uid, []) if at >= now - FORESEEN_SECONDS]
            self.crossed[name] += bool(recent)
            if recent and name == "migrate_risk":
                self.leads.append(now - recent[0])


def run_arm(
    settings: Settings,
    scenario: str,
    seed: int,
    cycles: int,
    *,
    held_out: bool = True,
    seer: Callable[[Settings, SimCluster], Forecaster] | None = None,
) -> Arm:
    """One run without page, forks or rotation; ``seer`` may bring a forecaster of its own."""
    plan = load_scenario(scenario)
    if held_out:
        plan = plan.with_ranges("held-out")
    settings = replace(
        settings,
        run=replace(settings.run, scenario=scenario, seed=seed, interval_wall_seconds=0.0),
        score=replace(settings.score, forks=False),
    )
    actions = abstained = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder) / "run.db", settings=settings.journal) as journal,
    ):
        cluster = SimCluster(plan, seed=seed, name=settings.run.cluster)
        forecaster = None if seer is None else seer(settings, cluster)
        runner = Runner(settings=settings, journal=journal, cluster=cluster, forecaster=forecaster)
        foresight = Foresight(with_thresholds(settings))
        for report in runner.cycles(cycles):
            actions += sum(not a.restores for a in report.turn.decision.actions)
            abstained += " for " in report.turn.forecast.forecaster
            foresight.see(report.turn.snapshot, report.turn.forecast)
        toll = cluster.toll()
    return Arm(
        forecaster=settings.forecast.forecaster if forecaster is None else forecaster.name,
        scenario=scenario,
        seed=seed,
        failed_pod_seconds=toll.failed_pod_seconds,
        violation_seconds=toll.violation_seconds,
        energy_joules=toll.energy_joules,
        actions=actions,
        abstained=abstained / cycles,
        deaths=foresight.deaths,
        crossed=foresight.crossed,
        lead_seconds=tuple(foresight.leads),
    )


def compare(
    forecasters: Sequence[str],
    *,
    scenarios: Sequence[str] = NEW_FAMILIES,
    seeds: Sequence[int] = tuple(range(20)),
    cycles: int = 280,
    settings: Settings | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Every forecaster on every day; the first one is what the others are compared with."""
    settings = settings or Settings()
    arms: list[Arm] = []
    total = len(forecasters) * len(scenarios) * len(seeds)
    for scenario in scenarios:
        for seed in seeds:
            for name in forecasters:
                chosen = replace(settings, forecast=replace(settings.forecast, forecaster=name))
                arms.append(run_arm(chosen, scenario, seed, cycles))
                progress(len(arms), total)
    return {
        "track": "in the loop",
        "cycles": cycles,
        "scenarios": list(scenarios),
        "seeds": list(seeds),
        "means": {name: means(arms, name) for name in forecasters},
        "against": forecasters[0],
        "differences": {name: difference(arms, forecasters[0], name) for name in forecasters[1:]},
        "arms": [{f: getattr(arm, f) for f in arm.__dataclass_fields__} for arm in arms],
    }


def means(arms: list[Arm], name: str) -> dict[str, float]:
    mine = [arm for arm in arms if arm.forecaster == name]
    deaths = max(sum(a.deaths for a in mine), 1)
    leads = [lead for a in mine for lead in a.lead_seconds]
    return {
        **{
            f"share_of_deaths_at_{level}": sum(a.crossed[level] for a in mine) / deaths
            for level in mine[0].crossed
        },
        "lead_seconds_median": float(np.median(leads)) if leads else 0.0,
        "failed_pod_seconds": float(np.mean([a.failed_pod_seconds for a in mine])),
        "violation_seconds": float(np.mean([a.violation_seconds for a in mine])),
        "energy_joules": float(np.mean([a.energy_joules for a in mine])),
        "actions": float(np.mean([a.actions for a in mine])),
        "abstained": float(np.mean([a.abstained for a in mine])),
    }


def difference(arms: list[Arm], against: str, name: str) -> dict[str, Any]:
    """Paired by day; the interval draws days."""
    days = sorted({(a.scenario, a.seed) for a in arms})
    by = {(a.forecaster, a.scenario, a.seed): a for a in arms}
    pairs = [(by[(against, *d)], by[(name, *d)]) for d in days]
    before = np.array([p[0].failed_pod_seconds for p in pairs])
    after = np.array([p[1].failed_pod_seconds for p in pairs])
    dice = np.random.default_rng(0)
    drawn = dice.integers(0, len(days), (2000, len(days)))
    share = 1 - after[drawn].sum(axis=1) / np.maximum(before[drawn].sum(axis=1), 1e-9)
    low, high = np.percentile(share, [2.5, 97.5])
    return {
        "fewer_failed_pod_seconds": float(1 - after.sum() / max(before.sum(), 1e-9)),
        "interval": [float(low), float(high)],
        "actions": [int(sum(p[i].actions for p in pairs)) for i in (0, 1)],
        "better_on": int((after < before).sum()),
        "worse_on": int((after > before).sum()),
        "days": len(days),
    }
