# SPDX-License-Identifier: Apache-2.0
"""A made-up run for looking at the page: plausible turns without a simulator or a loop.

``python tests/server/parade.py [PORT]`` serves it until interrupted.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pilothouse.domain import (
    Action,
    ActionKind,
    Decision,
    Driver,
    Evidence,
    Forecast,
    Mode,
    Phase,
    Power,
    Proposal,
    Receipt,
    Ref,
    Result,
    Reward,
    Ruling,
    Snapshot,
    Status,
    Verb,
    Verdict,
    Write,
)
from pilothouse.server import Control, Feed, RunFacts, Stimulus, Turn, cycle_view
from pilothouse.testing.builders import (
    a_forecast,
    a_snapshot,
    a_toll,
    with_namespace,
    with_node,
    with_pod,
    with_risk,
    with_workload,
)

RUN = RunFacts(id="7d1f20aa", cluster="sim", scenario="harbor", seed=7, cycle_seconds=15)
MODES = {"admission": "enforce", "efficiency": "enforce", "janitor": "enforce", "safety": "enforce"}
SETTLE_CYCLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNow:
    name: str
    state: str
    done: int = 0
    total: int = 0
    reason: str = ""
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckNow:
    name: str
    ok: bool
    sentence: str


def turns(count: int = 10**9, *, nodes: int = 14, pods: int = 160) -> Iterator[Turn]:
    """One turn after the other: a node decays, a queue builds up, quiet stretches between."""
    acted: list[tuple[int, Action]] = []
    for cycle in range(1, count + 1):
        seconds = 15 * cycle
        risk = max(0.04, math.sin(cycle / 9) * 0.95)
        queue = max(0, int(18 * math.sin(cycle / 14 + 2)))
        snapshot, forecast = _seen(cycle, seconds, risk, queue, nodes, pods)
        decision = _decision(cycle, seconds, risk, queue)
        receipts = [
            Receipt(
                intent=w.intent, status=_status(cycle), detail=_detail(cycle), at_seconds=seconds
            )
            for action in decision.actions
            for w in action.writes
        ]
        due = [action for when, action in acted if when + SETTLE_CYCLES == cycle]
        acted = [(when, a) for when, a in acted if when + SETTLE_CYCLES > cycle]
        acted += [(cycle, action) for action in decision.actions]
        yield Turn(
            run=RUN,
            decision=decision,
            snapshot=snapshot,
            forecast=forecast,
            receipts=receipts,
            results=[_result(action, cycle, seconds) for action in due],
            timings=_timings(cycle),
            wall_ms=int(time.time() * 1000),
            modes=MODES,
            stages=_stages(cycle),  # type: ignore[arg-type]
            checks=_checks(cycle, queue),
            stimuli=_stimuli(cycle, queue),
            controls=[Control(text="safety set to advise in namespace media")]
            if cycle % 40 == 39
            else [],
            journal_bytes=48_000 * cycle,
        )


def _status(cycle: int) -> Status:
    return Status.REFUSED if cycle % 11 == 5 else Status.DONE


def _detail(cycle: int) -> str:
    return "disruption budget: ready 2, min 2" if cycle % 11 == 5 else ""


def _seen(
    cycle: int, seconds: int, risk: float, queue: int, nodes: int, pods: int
) -> tuple[Snapshot, Forecast]:
    rng = np.random.default_rng(cycle)
    snapshot = a_snapshot(nodes=nodes, pods=pods, seed=3, taken_seconds=seconds)
    for row in range(nodes):
        share = 0.25 + 0.5 * abs(math.sin(row * 1.7)) + 0.05 * rng.random()
        snapshot = with_node(
            snapshot,
            row,
            cpu_used_millicores=int(16_000 * share),
            power_watts=int(80 + 120 * share),
            errors_per_minute=int(20 * risk) if row == 2 else 0,
            heartbeat_lag_ms=int(9000 * risk) if row == 2 else int(200 * rng.random()),
        )
    snapshot = with_node(snapshot, nodes - 1, power=Power.ASLEEP, ready=0, power_watts=6, pods=0)
    if risk > 0.85:
        snapshot = with_node(snapshot, 2, tainted=1, power=Power.DRAINING)
    for row in range(queue):
        snapshot = with_pod(
            snapshot, row, phase=Phase.PENDING, node=-1, pending_cause=2 if row % 6 == 5 else 1
        )
    if queue > 8:
        snapshot = with_workload(snapshot, 1, in_violation=1, latency_ms=312)
        snapshot = with_namespace(snapshot, 1, gate=1)
    forecast = a_forecast(snapshot, forecaster="ewma-trend/1")
    permille = int(1000 * risk)
    return snapshot, with_risk(
        forecast, "node_risk", 2, [permille // 2, permille, permille, permille], Driver.ERRORS, 14
    )


def _decision(cycle: int, seconds: int, risk: float, queue: int) -> Decision:
    wishes = [_safety(seconds, risk), _efficiency(seconds, cycle), _admission(seconds, queue)]
    chosen = 0 if risk >= 0.5 else 2 if queue >= 8 else 1 if cycle % 3 else None
    verdicts = [_verdict(i, chosen, wishes) for i in range(3)]
    if risk > 0.6:
        wishes.append(_replica(seconds, risk))
        verdicts.append(
            Verdict(
                ruling=Ruling.REFUSED,
                rule="replicas-per-workload",
                sentence="1 of 1 replica already added in this window, free at 00:14:19",
                used=1,
                allowed=1,
                free_at_seconds=seconds + 400,
            )
        )
    ident = f"{(cycle * 2654435761) % 2**32:08x}"
    actions = () if chosen is None else (_action(ident, chosen, wishes[chosen], seconds),)
    return Decision(
        id=ident,
        cycle=cycle,
        made_seconds=seconds,
        snapshot_digest="5b" * 32,
        forecast_digest="c4" * 32,
        proposals=tuple(wishes),
        verdicts=tuple(verdicts),
        actions=actions,
        headline=chosen,
        rationale=wishes[chosen].reason
        if chosen is not None
        else f"Nothing to do: highest risk node-2 {risk:.2f} (needs 0.50), queue {queue} (needs 8)",
        margin=wishes[chosen].otherwise if chosen is not None else "",
    )


def _verdict(index: int, chosen: int | None, wishes: list[Proposal]) -> Verdict:
    if index == chosen:
        return Verdict(ruling=Ruling.CHOSEN, rule="highest-rank", sentence="nothing outranks it")
    if wishes[index].is_noop or chosen is None:
        return Verdict(
            ruling=Ruling.CHOSEN if wishes[index].is_noop else Ruling.REFUSED,
            rule="asks-nothing" if wishes[index].is_noop else "dwell",
            sentence="it asks for nothing"
            if wishes[index].is_noop
            else "node-5 changed 45 s ago and rests for 120 s",
            mode=Mode.ENFORCE,
        )
    winner = wishes[chosen]
    return Verdict(
        ruling=Ruling.OVERRIDDEN,
        rule="safety-preempts" if chosen == 0 else "admission-preempts",
        sentence=f"{winner.agent} preempts {wishes[index].agent} while anything is at risk: "
        f"{winner.label} {winner.score:.2f}",
        by=chosen,
    )


def _safety(seconds: int, risk: float) -> Proposal:
    kind = ActionKind.MIGRATE if risk >= 0.7 else ActionKind.THROTTLE
    kind = kind if risk >= 0.5 else ActionKind.NOOP
    return Proposal(
        agent="safety",
        label=f"AgentA:{kind}",
        kind=kind,
        target=Ref("sim", "node", "", "node-2"),
        payload={},
        score=round(risk, 2),
        priority=1,
        evidence=(
            Evidence("risk 15 min", round(risk, 2), needs=0.7 if risk >= 0.7 else 0.5),
            Evidence("errors", int(20 * risk), "/min"),
            Evidence("heartbeat lag", round(9 * risk, 1), "s"),
        ),
        reason=f"node-2 fails within 15 min with probability {risk:.2f} (needs 0.70): "
        f"{int(20 * risk)} errors/min, heartbeat {9 * risk:.1f} s late",
        expires_seconds=seconds + 60,
        otherwise="at risk below 0.70 the choice would have been: throttle node-2",
    )


def _efficiency(seconds: int, cycle: int) -> Proposal:
    demand = 0.11 + 0.02 * (cycle % 7)
    return Proposal(
        agent="efficiency",
        label="AgentB:dvfs",
        kind=ActionKind.DVFS,
        target=Ref("sim", "node", "", "node-5"),
        payload={"frequency_permille": 650},
        score=round(1 - demand, 2),
        priority=3,
        evidence=(Evidence("demand p95 15 min", round(demand, 2), needs=0.30),),
        reason=f"node-5 needs {demand:.2f} of its CPU in 15 min (acts below 0.30)",
        expires_seconds=seconds + 60,
        otherwise="at demand below 0.12 the choice would have been: sleep node-5",
    )


def _admission(seconds: int, queue: int) -> Proposal:
    kind = ActionKind.ADMISSION if queue >= 8 else ActionKind.NOOP
    return Proposal(
        agent="admission",
        label=f"AgentC:{'queue' if queue >= 8 else 'admit'}",
        kind=kind,
        target=Ref("sim", "namespace", "", "media"),
        payload={"decision": "queue" if queue >= 8 else "admit"},
        score=min(1.0, queue / 40),
        priority=2,
        evidence=(
            Evidence("queue", queue, "pods", needs=8),
            Evidence("oldest", queue * 7, "s"),
        ),
        reason=f"{queue} pods wait for room (needs 8), {queue // 6} more can never be placed",
        expires_seconds=seconds + 60,
        otherwise="below 8 the choice would have been: admit" if queue >= 8 else "",
    )


def _replica(seconds: int, risk: float) -> Proposal:
    return Proposal(
        agent="safety",
        label="AgentA:replicate",
        kind=ActionKind.REPLICATE,
        target=Ref("sim", "workload", "shop", "cart"),
        payload={"avoid": "node-2"},
        score=round(risk - 0.03, 2),
        priority=2,
        evidence=(Evidence("replicas at risk", 2, "of 3"),),
        reason="2 of 3 replicas of shop/cart run on node-2",
        expires_seconds=seconds + 60,
    )


def _action(ident: str, index: int, wish: Proposal, seconds: int) -> Action:
    verb = {0: Verb.TAINT, 1: Verb.FREQUENCY, 2: Verb.GATE}[index]
    writes = tuple(
        Write(
            verb=verb if n == 0 else Verb.DRAIN,
            target=wish.target,
            uid=1,
            value=1 if index != 1 else 650,
            original=0 if index != 1 else 1000,
            intent=f"{ident}.0.{n}",
        )
        for n in range(2 if index == 0 else 1)
    )
    return Action(
        id=f"{ident}.0",
        proposal=index,
        agent=wish.agent,
        kind=wish.kind,
        target=wish.target,
        writes=writes,
        inverse=(),
        expires_seconds=seconds + 900,
    )


def _result(action: Action, cycle: int, seconds: int) -> Result:
    swing = math.sin(cycle * 1.3)
    reward = Reward(
        safety=round(7.2 * abs(swing), 2) if action.agent == "safety" else 0.0,
        efficiency=round(1.4 + swing, 2) if action.agent == "efficiency" else round(-0.2, 2),
        admission=round(2.1 * swing, 2) if action.agent == "admission" else 0.0,
    )
    return Result(
        action=action.id,
        settled_seconds=seconds,
        method="fork",
        toll=a_toll(energy_joules=90_000.0),
        effect=a_toll(failed_pod_seconds=-120.0 * abs(swing), energy_joules=-4200.0),
        reward=reward,
        overlapped=cycle % 9 == 0,
        sentence=f"{action.kind} {action.target.short}: {120 * abs(swing):.0f} failed-pod seconds "
        "saved against the same cluster without it",
    )


def _timings(cycle: int) -> dict[str, float]:
    names = ("observe", "predict", "propose", "arbitrate", "guard", "act", "score", "explain")
    rng = np.random.default_rng(cycle)
    return {name: float(value) for name, value in zip(names, rng.gamma(2, 0.6, 8), strict=True)}


def _stages(cycle: int) -> list[StageNow]:
    return [
        StageNow(name="forecasters", state="done", done=1, total=1, artifacts=("ewma-trend/1",)),
        StageNow(name="tune", state="disabled", reason="nothing to tune for the baseline"),
        StageNow(name="train", state="disabled", reason="no learned forecaster chosen"),
        StageNow(name="loop", state="running", done=cycle, total=400),
    ]


def _checks(cycle: int, queue: int) -> list[CheckNow]:
    flat = queue == 0 and cycle % 60 > 45
    return [
        CheckNow(name="samples", ok=True, sentence="cluster samples arrive"),
        CheckNow(
            name="stimulus-bites",
            ok=not flat,
            sentence=f"queue-surge is active for 150 s but the queue stayed at {queue}",
        ),
    ]


def _stimuli(cycle: int, queue: int) -> list[Stimulus]:
    surge = Stimulus(
        name="queue-surge",
        target="media",
        since_seconds=15 * (cycle - 10),
        until_seconds=15 * (cycle + 12),
        expects="the queue grows past 8 pods",
    )
    return [surge] if queue or cycle % 60 > 45 else []


def publish(feed: Feed, count: int, *, first: int = 0) -> None:
    """Publish ``count`` turns, skipping the first ones."""
    for number, turn in enumerate(turns(first + count)):
        if number >= first:
            feed.publish(cycle_view(turn, feed.latest))


def with_wall(turn: Turn) -> Turn:
    return replace(turn, wall_ms=int(time.time() * 1000))


def main() -> None:
    from pilothouse.server.app import create_app
    from pilothouse.server.run import start

    feed = Feed()
    app = create_app(
        feed,
        token="parade",
        ingest=lambda source, content: 1,
        ready=lambda: (True, "parade"),
        version="0.1.0",
    )
    running = start(app, "127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(running.url, flush=True)
    pace = threading.Event()
    for number, turn in enumerate(turns()):
        feed.publish(cycle_view(with_wall(turn), feed.latest))
        if number > 90:
            pace.wait(0.5)


if __name__ == "__main__":
    main()
