# SPDX-License-Identifier: Apache-2.0
"""The run looks at itself: four mismatches between its story and the state it produces.

Each was once seen in a control loop that looked healthy from outside. A check that fails is a
recorded warning, never an exception: the loop goes on and says what does not add up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pilothouse.domain import Decision, Result, Snapshot

WINDOW_CYCLES = 20  # five minutes of fifteen-second cycles: a stimulus has had time to bite


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check's answer."""

    name: str
    ok: bool
    sentence: str
    numbers: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """A stimulus that is running, and the pressure it should cause."""

    name: str
    pressure: str  # a key of ``pressures_of``; any other is taken on trust
    since_seconds: int


@dataclass(slots=True)
class _Sample:
    seconds: int
    pressures: dict[str, float]
    decided: str
    reward: float


class SelfCheck:
    """Remembers the last cycles and compares them with what the run claims."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=WINDOW_CYCLES)
        self._failing: set[str] = set()

    def look(
        self,
        snapshot: Snapshot,
        decision: Decision,
        results: list[Result],
        stresses: tuple[Stress, ...],
    ) -> list[Finding]:
        """Findings that changed since the last look: a new warning, or one that is over."""
        reward = sum(
            r.reward.safety + r.reward.efficiency + r.reward.admission
            for r in results
            if r.reward is not None
        )
        shape = "|".join(f"{a.kind}:{a.target}" for a in decision.actions)
        self._samples.append(_Sample(snapshot.taken_seconds, pressures_of(snapshot), shape, reward))
        found = [self._rewards_without_decisions(), *(self._stress(s) for s in stresses)]
        active = {f"stimulus-without-pressure:{s.name}" for s in stresses}
        over = [
            Finding(name=name, ok=True, sentence="the stimulus is over", numbers={})
            for name in sorted(self._failing)
            if name.startswith("stimulus-without-pressure:") and name not in active
        ]
        return [f for f in (*found, *over) if self._changed(f)]

    def at_end(
        self, snapshot: Snapshot | None, stages_done: list[str], loop_done: bool
    ) -> list[Finding]:
        """What must be true of a run that says it is complete."""
        samples = len(self._samples)
        findings = [
            Finding(
                name="stage-without-samples",
                ok=samples > 0 or not stages_done,
                sentence=f"stages done: {', '.join(stages_done) or 'none'}; "
                f"cluster samples seen: {samples}",
                numbers={"samples": float(samples)},
            )
        ]
        if loop_done and snapshot is not None:
            view = snapshot.interpreted
            findings.append(
                Finding(
                    name="done-while-unhealthy",
                    ok=view.violations == 0 and view.failed_pods == 0,
                    sentence=f"the loop is done; {view.violations} workloads in violation, "
                    f"{view.failed_pods} failed pods, queue {view.queue_length}",
                    numbers={
                        "violations": float(view.violations),
                        "failed_pods": float(view.failed_pods),
                    },
                )
            )
        return findings

    def _rewards_without_decisions(self) -> Finding:
        rewards = {round(s.reward, 3) for s in self._samples}
        decisions = {s.decided for s in self._samples}
        full = len(self._samples) == WINDOW_CYCLES
        moving = full and len(rewards) > WINDOW_CYCLES // 2
        return Finding(
            name="reward-without-decisions",
            ok=not (moving and len(decisions) == 1),
            sentence=f"{len(rewards)} different rewards and {len(decisions)} different decisions "
            f"in the last {len(self._samples)} cycles",
            numbers={"rewards": float(len(rewards)), "decisions": float(len(decisions))},
        )

    def _stress(self, stress: Stress) -> Finding:
        name = f"stimulus-without-pressure:{stress.name}"
        before = [s for s in self._samples if s.seconds < stress.since_seconds]
        during = [s for s in self._samples if s.seconds >= stress.since_seconds]
        known = stress.pressure in self._samples[-1].pressures
        if not known or not before or len(during) < WINDOW_CYCLES // 2:
            return Finding(name=name, ok=True, sentence="too early to tell", numbers={})
        base = max(s.pressures[stress.pressure] for s in before[-3:])
        peak = max(s.pressures[stress.pressure] for s in during)
        return Finding(
            name=name,
            ok=peak > base,
            sentence=f"{stress.name} is active since {stress.since_seconds} s and should raise "
            f"{stress.pressure}: {base:g} before, at most {peak:g} since",
            numbers={"before": base, "peak": peak},
        )

    def _changed(self, finding: Finding) -> bool:
        was_failing = finding.name in self._failing
        if finding.ok:
            self._failing.discard(finding.name)
        else:
            self._failing.add(finding.name)
        return was_failing == finding.ok


def pressures_of(snapshot: Snapshot) -> dict[str, float]:
    """The pressures a stimulus may claim to cause."""
    view, nodes, pods = snapshot.interpreted, snapshot.nodes, snapshot.pods
    return {
        "queue": float(view.queue_length),
        "unschedulable": float(view.unschedulable),
        "cpu": float(nodes.cpu_used_millicores.sum()),
        "memory": float(pods.memory_used_mib.max(initial=0)),
        "errors": float(nodes.errors_per_minute.max(initial=0)),
        "unready": float((nodes.ready == 0).sum()),
        "latency": float(snapshot.workloads.latency_ms.max(initial=0)),
        "low load": -float(nodes.cpu_used_millicores.sum()),
    }
