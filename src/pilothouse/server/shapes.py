# SPDX-License-Identifier: Apache-2.0
"""The JSON that readers of the API get, one type per shape.

These types are the contract: the OpenAPI document is made from them and the page's TypeScript
types are checked against that document. Descriptions live here, on the field, and nowhere else.
Times named ``*_seconds`` are the cluster's clock. Shares are per mille, as in the snapshot.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

StepName = Literal["observe", "predict", "propose", "arbitrate", "guard", "act", "score", "explain"]
STEPS: tuple[StepName, ...] = (
    "observe",
    "predict",
    "propose",
    "arbitrate",
    "guard",
    "act",
    "score",
    "explain",
)
Ruling = Literal["chosen", "overridden", "refused", "expired"]
DecisionKind = Literal["act", "advise", "nothing"]
EventKind = Literal["action", "refusal", "outcome", "check", "control", "stage"]
Severity = Literal["info", "good", "warn", "bad"]
StageState = Literal["pending", "running", "done", "disabled"]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object of the API."""


def _says(text: str) -> Meta:
    return Meta(description=text)


class EvidenceView(Shape, frozen=True, kw_only=True):
    """One number behind a proposal, and the threshold it was held against."""

    name: Annotated[str, _says("What was measured or forecast.")]
    value: Annotated[float | None, _says("The number; null when it was not finite.")]
    unit: Annotated[str, _says("Unit of the value; empty for a plain number.")]
    needs: Annotated[float | None, _says("The threshold, where there is one.")]


class WinnerView(Shape, frozen=True, kw_only=True):
    """The proposal that won over another one."""

    index: Annotated[int, _says("Its index among all proposals of the decision.")]
    agent: Annotated[str, _says("Registered name of its agent.")]
    label: Annotated[str, _says('Its label, such as "AgentA:replicate".')]
    target: Annotated[str, _says("Short name of the object it aims at.")]
    score: Annotated[float | None, _says("Its score, 0 to 1.")]


class ProposalView(Shape, frozen=True, kw_only=True):
    """What an agent wanted and what became of it."""

    index: Annotated[int, _says("Position among all proposals of the decision.")]
    agent: Annotated[str, _says("Registered name of the agent.")]
    label: Annotated[str, _says('Agent title and action, such as "AgentA:replicate".')]
    kind: Annotated[str, _says("Kind of action; noop asks for nothing.")]
    target: Annotated[str, _says("Short name of the object it aims at.")]
    ref: Annotated[str, _says("Full reference of that object, with the cluster's name.")]
    score: Annotated[float | None, _says("0 to 1; null when the proposer gave no finite number.")]
    priority: Annotated[int, _says("The agent's own order of its wishes, lower first.")]
    reason: Annotated[str, _says("Why the agent wants it, with the deciding numbers.")]
    otherwise: Annotated[str, _says("What it would have wanted below which number.")]
    evidence: Annotated[list[EvidenceView], _says("The very numbers the agent used.")]
    payload: Annotated[dict[str, str], _says("Parameters of the action, as text.")]
    expires_seconds: Annotated[int, _says("Cluster clock after which it is void.")]
    ruling: Annotated[Ruling, _says("What became of it.")]
    rule: Annotated[str, _says("The rule or guard-rail that decided.")]
    sentence: Annotated[str, _says("That rule with its numbers, as a person reads it.")]
    mode: Annotated[str, _says("How far the agent may go here: off, shadow, advise, enforce.")]
    beaten_by: Annotated[WinnerView | None, _says("Who won over it, when it was overridden.")]
    used: Annotated[float | None, _says("How much of the guard-rail's allowance is used.")]
    allowed: Annotated[float | None, _says("The guard-rail's allowance.")]
    free_at_seconds: Annotated[int | None, _says("Cluster clock at which there is room again.")]


class ReceiptView(Shape, frozen=True, kw_only=True):
    """The backend's answer to one write."""

    intent: Annotated[str, _says("Id of the write: decision, action, number.")]
    write: Annotated[str, _says("The write in words.")]
    status: Annotated[str, _says("done, refused, failed or skipped.")]
    detail: Annotated[str, _says("What the backend said.")]
    reservation: Annotated[str, _says("Why it is done and has no effect yet; empty otherwise.")]
    at_seconds: Annotated[int, _says("Cluster clock of the answer.")]


class RewardView(Shape, frozen=True, kw_only=True):
    """Reward by agent."""

    safety: Annotated[float, _says("Nothing dies (agent A).")]
    efficiency: Annotated[float, _says("Nothing idles (agent B).")]
    admission: Annotated[float, _says("The queue stays healthy (agent C).")]


class EffectView(Shape, frozen=True, kw_only=True):
    """What an action changed; negative numbers are savings."""

    failed_pod_seconds: Annotated[float, _says("Seconds of pods that should serve and did not.")]
    violation_seconds: Annotated[float, _says("Seconds of workloads outside their objective.")]
    waiting_pod_seconds: Annotated[float, _says("Seconds of pods that waited.")]
    energy_joules: Annotated[float, _says("Energy, modelled.")]
    energy_cost_micros: Annotated[float, _says("Energy cost in millionths, modelled.")]
    carbon_grams: Annotated[float, _says("Carbon, modelled.")]


class ResultView(Shape, frozen=True, kw_only=True):
    """What an action came to after its settle window."""

    action: Annotated[str, _says("Id of the action.")]
    settled_seconds: Annotated[int, _says("Cluster clock at the end of the window.")]
    method: Annotated[
        str, _says("fork: against the same cluster without it; observed: the time before.")
    ]
    sentence: Annotated[str, _says("The result as a person reads it.")]
    overlapped: Annotated[bool, _says("Another action touched the same objects meanwhile.")]
    effect: Annotated[EffectView | None, _says("Difference the action made; null: unknown.")]
    reward: Annotated[RewardView | None, _says("What it earned; null: unknown.")]


class ActionView(Shape, frozen=True, kw_only=True):
    """A chosen proposal that was carried out, and what came of it."""

    id: Annotated[str, _says("Decision id and number.")]
    proposal: Annotated[int, _says("Index of the proposal it carries out.")]
    agent: Annotated[str, _says("Registered name of the agent.")]
    kind: Annotated[str, _says("Kind of action.")]
    target: Annotated[str, _says("Short name of the object it acts on.")]
    writes: Annotated[int, _says("Writes it is made of.")]
    expires_seconds: Annotated[int | None, _says("When its inverse runs; null: nothing to undo.")]
    restores: Annotated[str, _says("Id of the action it takes back; empty otherwise.")]
    receipts: Annotated[list[ReceiptView], _says("The backend's answers, at most twenty.")]
    result: Annotated[ResultView | None, _says("Null until the settle window has passed.")]


class RulingCounts(Shape, frozen=True, kw_only=True):
    """How many proposals met which fate."""

    chosen: Annotated[int, _says("Chosen.")]
    overridden: Annotated[int, _says("Lost to another proposal.")]
    refused: Annotated[int, _says("Refused by the guard.")]
    expired: Annotated[int, _says("Too old to be judged.")]


class DecisionView(Shape, frozen=True, kw_only=True):
    """One decision with everything that was weighed."""

    id: Annotated[str, _says("Id of the decision.")]
    cycle: Annotated[int, _says("The cycle it was made in.")]
    at_seconds: Annotated[int, _says("Cluster clock at which it was made.")]
    kind: Annotated[DecisionKind, _says("act, advise (nobody may act) or nothing.")]
    title: Annotated[str, _says("The headline in a few words.")]
    headline: Annotated[int | None, _says("Index of the proposal to show first.")]
    rationale: Annotated[str, _says("Why, in one sentence with the deciding numbers.")]
    margin: Annotated[str, _says("What would have been chosen had that number been lower.")]
    halted: Annotated[bool, _says("The kill switch was on.")]
    halted_because: Annotated[str, _says("Why it was on; empty where nobody said or it was off.")]
    snapshot_digest: Annotated[str, _says("Digest of the snapshot it was made from.")]
    forecast_digest: Annotated[str, _says("Digest of the forecast it was made from.")]
    proposals_total: Annotated[int, _says("How many proposals there were.")]
    proposals: Annotated[list[ProposalView], _says("At most sixty, chosen and losers first.")]
    rulings: Annotated[RulingCounts, _says("Counts over all proposals.")]
    actions: Annotated[list[ActionView], _says("What was done, with answers and results.")]


class StepView(Shape, frozen=True, kw_only=True):
    """One step of the loop and how fresh its work is."""

    name: Annotated[StepName, _says("The step.")]
    done_seconds: Annotated[int | None, _says("Cluster clock when it last did something.")]
    age_seconds: Annotated[int | None, _says("Cluster time since then; null: never.")]
    duration_ms: Annotated[float | None, _says("How long it took then, wall milliseconds.")]
    summary: Annotated[str, _says("What it last did, in a few words.")]


class NodeView(Shape, frozen=True, kw_only=True):
    """One node as raw numbers and as we see it."""

    name: Annotated[str, _says("Name of the node.")]
    zone: Annotated[str, _says("Its zone.")]
    ready: Annotated[bool, _says("The node reports Ready.")]
    tainted: Annotated[bool, _says("New pods are kept off.")]
    power: Annotated[str, _says("awake, draining, asleep, booting or dead.")]
    pods: Annotated[int, _says("Pods bound to it.")]
    cpu_permille: Annotated[int, _says("CPU in use, of its capacity.")]
    memory_permille: Annotated[int, _says("Memory in use, of its capacity.")]
    pressure_permille: Annotated[int, _says("The higher of the two.")]
    frequency_permille: Annotated[int, _says("Clock, of the default.")]
    watts: Annotated[int, _says("Power draw, modelled.")]
    errors_per_minute: Annotated[int, _says("Corrected hardware and kernel errors.")]
    heartbeat_lag_ms: Annotated[int, _says("How late the last heartbeat was.")]
    age_seconds: Annotated[int, _says("Age of its usage numbers.")]
    risk_permille: Annotated[int | None, _says("Fails within 15 min; null: no forecast.")]
    driver: Annotated[str, _says("What moved the risk most, with its number.")]


class WorkloadView(Shape, frozen=True, kw_only=True):
    """A workload outside its objective."""

    name: Annotated[str, _says("Namespace and name.")]
    latency_ms: Annotated[int, _says("Observed 95th percentile.")]
    objective_ms: Annotated[int, _says("What it should be; 0: none.")]
    ready: Annotated[int, _says("Replicas that serve.")]
    desired: Annotated[int, _says("Replicas that are wanted.")]


class GateView(Shape, frozen=True, kw_only=True):
    """A namespace whose new pods are held back."""

    namespace: Annotated[str, _says("The namespace.")]
    gate: Annotated[str, _says("queue, deprioritize or reject.")]


class SourceView(Shape, frozen=True, kw_only=True):
    """How old and complete one source of the snapshot is."""

    name: Annotated[str, _says("The source.")]
    age_seconds: Annotated[int, _says("Its age.")]
    completeness_permille: Annotated[int, _says("How much of it arrived.")]


class TroubleView(Shape, frozen=True, kw_only=True):
    """Something that is not as it should be, and why."""

    cause: Annotated[str, _says("The cause, in words.")]
    target: Annotated[str, _says("What it has hold of.")]
    count: Annotated[int, _says("Pods concerned.")]
    sentence: Annotated[str, _says("The cluster's own words.")]


class ScalerView(Shape, frozen=True, kw_only=True):
    """An autoscaler of the cluster's own."""

    workload: Annotated[str, _says("Namespace and name of what it scales.")]
    current: Annotated[int, _says("Replicas there are.")]
    desired: Annotated[int, _says("Replicas it wants.")]
    maximum: Annotated[int, _says("Replicas it may want.")]


class ReactionView(Shape, frozen=True, kw_only=True):
    """How late the cluster's autoscaling was, from the load to each step."""

    workload: Annotated[str, _says("Namespace and name.")]
    decided_seconds: Annotated[int | None, _says("Until more replicas were wanted.")]
    node_seconds: Annotated[int | None, _says("Until a node that came was ready.")]
    running_seconds: Annotated[int | None, _says("Until they ran; null: given up.")]


class RawView(Shape, frozen=True, kw_only=True):
    """What the cluster says, counted and not interpreted."""

    nodes: Annotated[int, _says("Nodes.")]
    nodes_ready: Annotated[int, _says("Nodes that report Ready.")]
    nodes_tainted: Annotated[int, _says("Nodes that take no new pods.")]
    nodes_asleep: Annotated[int, _says("Nodes asleep.")]
    nodes_dead: Annotated[int, _says("Nodes whose machine is dead.")]
    pods: Annotated[int, _says("Pods that are wanted and not finished.")]
    pending: Annotated[int, _says("Pods in phase Pending.")]
    pending_resources: Annotated[int, _says("Pending: no node has room.")]
    pending_selector: Annotated[int, _says("Pending: no node matches.")]
    pending_gated: Annotated[int, _says("Pending: held back by a gate.")]
    pending_autoscaler: Annotated[int, _says("Pending: waiting for a new node.")]
    pending_foreign: Annotated[int, _says("Pending: held by somebody's own gate.")]
    starting: Annotated[int, _says("Pods that start.")]
    running: Annotated[int, _says("Pods that run.")]
    failed: Annotated[int, _says("Pods in crash back-off or on a lost node.")]
    terminating: Annotated[int, _says("Pods that end.")]
    workloads: Annotated[int, _says("Workloads.")]
    restarts: Annotated[int, _says("Container restarts, all pods together.")]
    watts: Annotated[int, _says("Power draw, modelled.")]


class InterpretedView(Shape, frozen=True, kw_only=True):
    """What we conclude from it; decisions are made from these numbers."""

    queue_length: Annotated[int, _says("Pods that wait and could run.")]
    queue_oldest_seconds: Annotated[int, _says("Wait of the oldest of them.")]
    unschedulable: Annotated[int, _says("Pods that no node will ever match.")]
    violations: Annotated[int, _says("Workloads outside their objective.")]
    failed_pods: Annotated[int, _says("Pods that should serve and do not.")]
    awake: Annotated[int, _says("Nodes that are ready and awake.")]
    overloaded: Annotated[int, _says("Awake nodes above 850 per mille.")]
    requested_permille: Annotated[int, _says("CPU requested, of awake capacity.")]
    used_permille: Annotated[int, _says("CPU in use, of awake capacity.")]
    power_watts: Annotated[int, _says("Power draw, modelled.")]


class StimulusView(Shape, frozen=True, kw_only=True):
    """Stress that the exerciser puts on the cluster now."""

    name: Annotated[str, _says("Name of the stimulus.")]
    target: Annotated[str, _says("What it is aimed at.")]
    since_seconds: Annotated[int, _says("Cluster clock at which it began.")]
    until_seconds: Annotated[int | None, _says("When it ends; null: open.")]
    expects: Annotated[str, _says("The pressure it should cause.")]


class ClusterView(Shape, frozen=True, kw_only=True):
    """The cluster, raw beside interpreted: debugging happens where they disagree."""

    name: Annotated[str, _says("Name of the cluster.")]
    raw: Annotated[RawView, _says("What the cluster says.")]
    interpreted: Annotated[InterpretedView, _says("What we conclude.")]
    nodes: Annotated[list[NodeView], _says("At most a hundred, worst first.")]
    violating: Annotated[list[WorkloadView], _says("At most twelve, worst first.")]
    gates: Annotated[list[GateView], _says("Namespaces that are not open, at most twelve.")]
    sources: Annotated[list[SourceView], _says("Freshness of what was read.")]
    troubles: Annotated[list[TroubleView], _says("What is wrong, at most twelve.")]
    scalers: Annotated[list[ScalerView], _says("Autoscalers that want a change, at most twelve.")]
    reactions: Annotated[list[ReactionView], _says("Autoscaling that ended in this cycle.")]
    stimuli: Annotated[list[StimulusView], _says("What is being exercised.")]


class AbstentionView(Shape, frozen=True, kw_only=True):
    """A part of the cluster without a forecast."""

    scope: Annotated[str, _says("nodes, pods, workloads or all.")]
    reason: Annotated[str, _says("Why.")]
    until_seconds: Annotated[int | None, _says("Cluster clock until when, where known.")]


class ShiftView(Shape, frozen=True, kw_only=True):
    """A feature whose population moved away from a forecaster's training data."""

    scope: Annotated[str, _says("nodes or pods.")]
    feature: Annotated[str, _says("Its name.")]
    index: Annotated[float, _says("Stability index; from 0.25 on it is told.")]


class ForecastView(Shape, frozen=True, kw_only=True):
    """What the forecaster said, in short."""

    forecaster: Annotated[str, _says("Name and version.")]
    riskiest: Annotated[str, _says("Node most likely to fail; empty: none.")]
    risk_permille: Annotated[int | None, _says("Its risk within 15 min; null: no forecast.")]
    driver: Annotated[str, _says("What moved that risk most.")]
    demand_median_millicores: Annotated[int, _says("CPU demand in 15 min, all nodes.")]
    demand_upper_millicores: Annotated[int, _says("The same, 95th percentiles summed.")]
    capacity_millicores: Annotated[int, _says("CPU capacity of awake nodes.")]
    abstentions: Annotated[list[AbstentionView], _says("Where there is no forecast.")]
    drift: Annotated[list[ShiftView], _says("Features that moved away from training.")]


class EventView(Shape, frozen=True, kw_only=True):
    """Something worth a line in the list."""

    id: Annotated[str, _says("Unique within the run.")]
    cycle: Annotated[int, _says("The cycle it belongs to.")]
    at_seconds: Annotated[int, _says("Cluster clock.")]
    kind: Annotated[EventKind, _says("What sort of event.")]
    severity: Annotated[Severity, _says("How it should look.")]
    agent: Annotated[str, _says("Whose it is; empty: nobody's.")]
    decision: Annotated[str, _says("Id of the decision it belongs to; empty: none.")]
    text: Annotated[str, _says("The line.")]


class StageView(Shape, frozen=True, kw_only=True):
    """One stage of the run."""

    name: Annotated[str, _says("Name of the stage.")]
    state: Annotated[StageState, _says("How far it is.")]
    done: Annotated[int, _says("Parts done.")]
    total: Annotated[int, _says("Parts in all; 0: not known.")]
    reason: Annotated[str, _says("Why it is disabled, or what it does.")]
    artifacts: Annotated[list[str], _says("What it used or made.")]


class CheckView(Shape, frozen=True, kw_only=True):
    """A self-check of the run."""

    name: Annotated[str, _says("Name of the check.")]
    ok: Annotated[bool, _says("False: a warning stands.")]
    sentence: Annotated[str, _says("What was found, with its numbers.")]
    since_seconds: Annotated[int, _says("Cluster clock since when it is so.")]


class RewardsView(Shape, frozen=True, kw_only=True):
    """Reward by agent since this process began to watch, and in this cycle."""

    total: Annotated[RewardView, _says("Sum over all settled actions.")]
    last: Annotated[RewardView, _says("From the actions that settled in this cycle.")]


class RunView(Shape, frozen=True, kw_only=True):
    """What is being run."""

    id: Annotated[str, _says("Id of the run.")]
    cluster: Annotated[str, _says("Name of the cluster.")]
    backend: Annotated[str, _says("sim or kubernetes.")]
    scenario: Annotated[str, _says("Name of the scenario; empty on a real cluster.")]
    seed: Annotated[int, _says("Seed of the run.")]
    cycle_seconds: Annotated[int, _says("Cluster time between two cycles.")]
    modes: Annotated[dict[str, str], _says("How far each agent may go.")]
    halted: Annotated[bool, _says("The kill switch is on.")]


class SettlingView(Shape, frozen=True, kw_only=True):
    """An action whose result is still to come."""

    action: Annotated[str, _says("Id of the action.")]
    agent: Annotated[str, _says("Registered name of the agent.")]
    label: Annotated[str, _says('Agent title and action, such as "AgentA:replicate".')]
    target: Annotated[str, _says("Short name of the object it acts on.")]
    since_seconds: Annotated[int, _says("Cluster clock at which it was decided.")]


class CycleView(Shape, frozen=True, kw_only=True):
    """Everything about one cycle."""

    cycle: Annotated[int, _says("Number of the cycle.")]
    at_seconds: Annotated[int, _says("Cluster clock of its snapshot.")]
    wall_ms: Annotated[int, _says("Wall clock when it was published, ms since 1970.")]
    cycle_ms: Annotated[float, _says("How long the cycle took, wall milliseconds.")]
    journal_bytes: Annotated[int, _says("Size of the journal.")]
    run: Annotated[RunView, _says("What is being run.")]
    decision: Annotated[DecisionView, _says("The decision.")]
    forecast: Annotated[ForecastView, _says("What it was told to expect.")]
    cluster: Annotated[ClusterView, _says("What it saw.")]
    steps: Annotated[list[StepView], _says("The loop, in order.")]
    rewards: Annotated[RewardsView, _says("Reward by agent.")]
    settled: Annotated[list[ResultView], _says("Results of earlier actions that came due.")]
    settling: Annotated[list[SettlingView], _says("Actions whose results are still to come.")]
    stages: Annotated[list[StageView], _says("Stages of the run.")]
    checks: Annotated[list[CheckView], _says("Self-checks.")]
    events: Annotated[list[EventView], _says("Events of this cycle, newest first.")]


class TimelineEntry(Shape, frozen=True, kw_only=True):
    """One cycle as a mark on the timeline."""

    cycle: Annotated[int, _says("Number of the cycle.")]
    at_seconds: Annotated[int, _says("Cluster clock.")]
    decision: Annotated[str, _says("Id of its decision.")]
    kind: Annotated[DecisionKind, _says("What sort of decision.")]
    agent: Annotated[str, _says("Agent of the headline; empty: nothing was done.")]
    title: Annotated[str, _says("The headline.")]
    overridden: Annotated[int, _says("Proposals that lost.")]
    refused: Annotated[int, _says("Proposals that were refused.")]


class HistoryView(Shape, frozen=True, kw_only=True):
    """Series over the cycles still remembered, one number per cycle."""

    cycle: Annotated[list[int], _says("Number of the cycle.")]
    at_seconds: Annotated[list[int], _says("Cluster clock.")]
    safety: Annotated[list[float], _says("Reward of agent A, summed up.")]
    efficiency: Annotated[list[float], _says("Reward of agent B, summed up.")]
    admission: Annotated[list[float], _says("Reward of agent C, summed up.")]
    queue: Annotated[list[int], _says("Pods that wait and could run.")]
    violations: Annotated[list[int], _says("Workloads outside their objective.")]
    failed_pods: Annotated[list[int], _says("Pods that should serve and do not.")]
    power_watts: Annotated[list[int], _says("Power draw, modelled.")]
    risk_permille: Annotated[list[int | None], _says("Highest node risk within 15 min.")]


class StateView(Shape, frozen=True, kw_only=True):
    """All a page needs to begin with; the stream carries it on."""

    version: Annotated[str, _says("Version of the program.")]
    current: Annotated[CycleView | None, _says("The latest cycle; null before the first.")]
    timeline: Annotated[list[TimelineEntry], _says("Remembered cycles, oldest first.")]
    history: Annotated[HistoryView, _says("Series over the remembered cycles.")]
    events: Annotated[list[EventView], _says("Latest events, newest first.")]
    stages: Annotated[list[StageView], _says("Stages of the run.")]
    checks: Annotated[list[CheckView], _says("Self-checks.")]


class CyclesPage(Shape, frozen=True, kw_only=True):
    """A page of remembered cycles."""

    cycles: Annotated[list[TimelineEntry], _says("Newest first.")]
    before: Annotated[int | None, _says("Ask with before=this for older ones; null: no more.")]


class StagesView(Shape, frozen=True, kw_only=True):
    """Stages and self-checks."""

    stages: Annotated[list[StageView], _says("Stages of the run.")]
    checks: Annotated[list[CheckView], _says("Self-checks.")]


class RecordAccepted(Shape, frozen=True, kw_only=True):
    """A record of another process is durable."""

    seq: Annotated[int, _says("Its number in the journal.")]


class Health(Shape, frozen=True, kw_only=True):
    """Whether the process lives or is ready."""

    ok: Annotated[bool, _says("Yes or no.")]
    detail: Annotated[str, _says("Why not, or what it does.")]


class Problem(Shape, frozen=True, kw_only=True):
    """What went wrong with a request."""

    code: Annotated[str, _says("A word a program can match.")]
    message: Annotated[str, _says("What is wrong and what was given.")]
    hint: Annotated[str, _says("What is accepted or what to do.")]


class ErrorView(Shape, frozen=True, kw_only=True):
    """The one shape of every error."""

    error: Annotated[Problem, _says("The problem.")]
