// SPDX-License-Identifier: Apache-2.0
// The shapes of the API, made from api/openapi.json by `npm run types`. Do not edit.

/** A part of the cluster without a forecast. */
export interface AbstentionView {
  /** Why. */
  readonly reason: string;
  /** nodes, pods, workloads or all. */
  readonly scope: string;
  /** Cluster clock until when, where known. */
  readonly until_seconds: number | null;
}

/** A chosen proposal that was carried out, and what came of it. */
export interface ActionView {
  /** Registered name of the agent. */
  readonly agent: string;
  /** When its inverse runs; null: nothing to undo. */
  readonly expires_seconds: number | null;
  /** Decision id and number. */
  readonly id: string;
  /** Kind of action. */
  readonly kind: string;
  /** Index of the proposal it carries out. */
  readonly proposal: number;
  /** The backend's answers, at most twenty. */
  readonly receipts: ReadonlyArray<ReceiptView>;
  /** Id of the action it takes back; empty otherwise. */
  readonly restores: string;
  /** Null until the settle window has passed. */
  readonly result: ResultView | null;
  /** Short name of the object it acts on. */
  readonly target: string;
  /** Writes it is made of. */
  readonly writes: number;
}

/** A self-check of the run. */
export interface CheckView {
  /** Name of the check. */
  readonly name: string;
  /** False: a warning stands. */
  readonly ok: boolean;
  /** What was found, with its numbers. */
  readonly sentence: string;
  /** Cluster clock since when it is so. */
  readonly since_seconds: number;
}

/** The cluster, raw beside interpreted: debugging happens where they disagree. */
export interface ClusterView {
  /** Namespaces that are not open, at most twelve. */
  readonly gates: ReadonlyArray<GateView>;
  /** What we conclude. */
  readonly interpreted: InterpretedView;
  /** Name of the cluster. */
  readonly name: string;
  /** At most a hundred, worst first. */
  readonly nodes: ReadonlyArray<NodeView>;
  /** What the cluster says. */
  readonly raw: RawView;
  /** Autoscaling that ended in this cycle. */
  readonly reactions: ReadonlyArray<ReactionView>;
  /** Autoscalers that want a change, at most twelve. */
  readonly scalers: ReadonlyArray<ScalerView>;
  /** Freshness of what was read. */
  readonly sources: ReadonlyArray<SourceView>;
  /** What is being exercised. */
  readonly stimuli: ReadonlyArray<StimulusView>;
  /** What is wrong, at most twelve. */
  readonly troubles: ReadonlyArray<TroubleView>;
  /** At most twelve, worst first. */
  readonly violating: ReadonlyArray<WorkloadView>;
}

/** Everything about one cycle. */
export interface CycleView {
  /** Cluster clock of its snapshot. */
  readonly at_seconds: number;
  /** Self-checks. */
  readonly checks: ReadonlyArray<CheckView>;
  /** What it saw. */
  readonly cluster: ClusterView;
  /** Number of the cycle. */
  readonly cycle: number;
  /** How long the cycle took, wall milliseconds. */
  readonly cycle_ms: number;
  /** The decision. */
  readonly decision: DecisionView;
  /** Events of this cycle, newest first. */
  readonly events: ReadonlyArray<EventView>;
  /** What it was told to expect. */
  readonly forecast: ForecastView;
  /** Size of the journal. */
  readonly journal_bytes: number;
  /** Reward by agent. */
  readonly rewards: RewardsView;
  /** What is being run. */
  readonly run: RunView;
  /** Results of earlier actions that came due. */
  readonly settled: ReadonlyArray<ResultView>;
  /** Actions whose results are still to come. */
  readonly settling: ReadonlyArray<SettlingView>;
  /** Stages of the run. */
  readonly stages: ReadonlyArray<StageView>;
  /** The loop, in order. */
  readonly steps: ReadonlyArray<StepView>;
  /** Wall clock when it was published, ms since 1970. */
  readonly wall_ms: number;
}

/** A page of remembered cycles. */
export interface CyclesPage {
  /** Ask with before=this for older ones; null: no more. */
  readonly before: number | null;
  /** Newest first. */
  readonly cycles: ReadonlyArray<TimelineEntry>;
}

/** One decision with everything that was weighed. */
export interface DecisionView {
  /** What was done, with answers and results. */
  readonly actions: ReadonlyArray<ActionView>;
  /** Cluster clock at which it was made. */
  readonly at_seconds: number;
  /** The cycle it was made in. */
  readonly cycle: number;
  /** Digest of the forecast it was made from. */
  readonly forecast_digest: string;
  /** The kill switch was on. */
  readonly halted: boolean;
  /** Why it was on; empty where nobody said or it was off. */
  readonly halted_because: string;
  /** Index of the proposal to show first. */
  readonly headline: number | null;
  /** Id of the decision. */
  readonly id: string;
  /** act, advise (nobody may act) or nothing. */
  readonly kind: "act" | "advise" | "nothing";
  /** What would have been chosen had that number been lower. */
  readonly margin: string;
  /** At most sixty, chosen and losers first. */
  readonly proposals: ReadonlyArray<ProposalView>;
  /** How many proposals there were. */
  readonly proposals_total: number;
  /** Why, in one sentence with the deciding numbers. */
  readonly rationale: string;
  /** Counts over all proposals. */
  readonly rulings: RulingCounts;
  /** Digest of the snapshot it was made from. */
  readonly snapshot_digest: string;
  /** The headline in a few words. */
  readonly title: string;
}

/** What an action changed; negative numbers are savings. */
export interface EffectView {
  /** Carbon, modelled. */
  readonly carbon_grams: number;
  /** Energy cost in millionths, modelled. */
  readonly energy_cost_micros: number;
  /** Energy, modelled. */
  readonly energy_joules: number;
  /** Seconds of pods that should serve and did not. */
  readonly failed_pod_seconds: number;
  /** Seconds of workloads outside their objective. */
  readonly violation_seconds: number;
  /** Seconds of pods that waited. */
  readonly waiting_pod_seconds: number;
}

/** The one shape of every error. */
export interface ErrorView {
  /** The problem. */
  readonly error: Problem;
}

/** Something worth a line in the list. */
export interface EventView {
  /** Whose it is; empty: nobody's. */
  readonly agent: string;
  /** Cluster clock. */
  readonly at_seconds: number;
  /** The cycle it belongs to. */
  readonly cycle: number;
  /** Id of the decision it belongs to; empty: none. */
  readonly decision: string;
  /** Unique within the run. */
  readonly id: string;
  /** What sort of event. */
  readonly kind: "action" | "check" | "control" | "outcome" | "refusal" | "stage";
  /** How it should look. */
  readonly severity: "bad" | "good" | "info" | "warn";
  /** The line. */
  readonly text: string;
}

/** One number behind a proposal, and the threshold it was held against. */
export interface EvidenceView {
  /** What was measured or forecast. */
  readonly name: string;
  /** The threshold, where there is one. */
  readonly needs: number | null;
  /** Unit of the value; empty for a plain number. */
  readonly unit: string;
  /** The number; null when it was not finite. */
  readonly value: number | null;
}

/** What the forecaster said, in short. */
export interface ForecastView {
  /** Where there is no forecast. */
  readonly abstentions: ReadonlyArray<AbstentionView>;
  /** CPU capacity of awake nodes. */
  readonly capacity_millicores: number;
  /** CPU demand in 15 min, all nodes. */
  readonly demand_median_millicores: number;
  /** The same, 95th percentiles summed. */
  readonly demand_upper_millicores: number;
  /** Features that moved away from training. */
  readonly drift: ReadonlyArray<ShiftView>;
  /** What moved that risk most. */
  readonly driver: string;
  /** Name and version. */
  readonly forecaster: string;
  /** Its risk within 15 min; null: no forecast. */
  readonly risk_permille: number | null;
  /** Node most likely to fail; empty: none. */
  readonly riskiest: string;
}

/** A namespace whose new pods are held back. */
export interface GateView {
  /** queue, deprioritize or reject. */
  readonly gate: string;
  /** The namespace. */
  readonly namespace: string;
}

/** Whether the process lives or is ready. */
export interface Health {
  /** Why not, or what it does. */
  readonly detail: string;
  /** Yes or no. */
  readonly ok: boolean;
}

/** Series over the cycles still remembered, one number per cycle. */
export interface HistoryView {
  /** Reward of agent C, summed up. */
  readonly admission: ReadonlyArray<number>;
  /** Cluster clock. */
  readonly at_seconds: ReadonlyArray<number>;
  /** Number of the cycle. */
  readonly cycle: ReadonlyArray<number>;
  /** Reward of agent B, summed up. */
  readonly efficiency: ReadonlyArray<number>;
  /** Pods that should serve and do not. */
  readonly failed_pods: ReadonlyArray<number>;
  /** Power draw, modelled. */
  readonly power_watts: ReadonlyArray<number>;
  /** Pods that wait and could run. */
  readonly queue: ReadonlyArray<number>;
  /** Highest node risk within 15 min. */
  readonly risk_permille: ReadonlyArray<number | null>;
  /** Reward of agent A, summed up. */
  readonly safety: ReadonlyArray<number>;
  /** Workloads outside their objective. */
  readonly violations: ReadonlyArray<number>;
}

/** What we conclude from it; decisions are made from these numbers. */
export interface InterpretedView {
  /** Nodes that are ready and awake. */
  readonly awake: number;
  /** Pods that should serve and do not. */
  readonly failed_pods: number;
  /** Awake nodes above 850 per mille. */
  readonly overloaded: number;
  /** Power draw, modelled. */
  readonly power_watts: number;
  /** Pods that wait and could run. */
  readonly queue_length: number;
  /** Wait of the oldest of them. */
  readonly queue_oldest_seconds: number;
  /** CPU requested, of awake capacity. */
  readonly requested_permille: number;
  /** Pods that no node will ever match. */
  readonly unschedulable: number;
  /** CPU in use, of awake capacity. */
  readonly used_permille: number;
  /** Workloads outside their objective. */
  readonly violations: number;
}

/** One node as raw numbers and as we see it. */
export interface NodeView {
  /** Age of its usage numbers. */
  readonly age_seconds: number;
  /** CPU in use, of its capacity. */
  readonly cpu_permille: number;
  /** What moved the risk most, with its number. */
  readonly driver: string;
  /** Corrected hardware and kernel errors. */
  readonly errors_per_minute: number;
  /** Clock, of the default. */
  readonly frequency_permille: number;
  /** How late the last heartbeat was. */
  readonly heartbeat_lag_ms: number;
  /** Memory in use, of its capacity. */
  readonly memory_permille: number;
  /** Name of the node. */
  readonly name: string;
  /** Pods bound to it. */
  readonly pods: number;
  /** awake, draining, asleep, booting or dead. */
  readonly power: string;
  /** The higher of the two. */
  readonly pressure_permille: number;
  /** The node reports Ready. */
  readonly ready: boolean;
  /** Fails within 15 min; null: no forecast. */
  readonly risk_permille: number | null;
  /** New pods are kept off. */
  readonly tainted: boolean;
  /** Power draw, modelled. */
  readonly watts: number;
  /** Its zone. */
  readonly zone: string;
}

/** What went wrong with a request. */
export interface Problem {
  /** A word a program can match. */
  readonly code: string;
  /** What is accepted or what to do. */
  readonly hint: string;
  /** What is wrong and what was given. */
  readonly message: string;
}

/** What an agent wanted and what became of it. */
export interface ProposalView {
  /** Registered name of the agent. */
  readonly agent: string;
  /** The guard-rail's allowance. */
  readonly allowed: number | null;
  /** Who won over it, when it was overridden. */
  readonly beaten_by: WinnerView | null;
  /** The very numbers the agent used. */
  readonly evidence: ReadonlyArray<EvidenceView>;
  /** Cluster clock after which it is void. */
  readonly expires_seconds: number;
  /** Cluster clock at which there is room again. */
  readonly free_at_seconds: number | null;
  /** Position among all proposals of the decision. */
  readonly index: number;
  /** Kind of action; noop asks for nothing. */
  readonly kind: string;
  /** Agent title and action, such as "AgentA:replicate". */
  readonly label: string;
  /** How far the agent may go here: off, shadow, advise, enforce. */
  readonly mode: string;
  /** What it would have wanted below which number. */
  readonly otherwise: string;
  /** Parameters of the action, as text. */
  readonly payload: Readonly<Record<string, string>>;
  /** The agent's own order of its wishes, lower first. */
  readonly priority: number;
  /** Why the agent wants it, with the deciding numbers. */
  readonly reason: string;
  /** Full reference of that object, with the cluster's name. */
  readonly ref: string;
  /** The rule or guard-rail that decided. */
  readonly rule: string;
  /** What became of it. */
  readonly ruling: "chosen" | "expired" | "overridden" | "refused";
  /** 0 to 1; null when the proposer gave no finite number. */
  readonly score: number | null;
  /** That rule with its numbers, as a person reads it. */
  readonly sentence: string;
  /** Short name of the object it aims at. */
  readonly target: string;
  /** How much of the guard-rail's allowance is used. */
  readonly used: number | null;
}

/** What the cluster says, counted and not interpreted. */
export interface RawView {
  /** Pods in crash back-off or on a lost node. */
  readonly failed: number;
  /** Nodes. */
  readonly nodes: number;
  /** Nodes asleep. */
  readonly nodes_asleep: number;
  /** Nodes whose machine is dead. */
  readonly nodes_dead: number;
  /** Nodes that report Ready. */
  readonly nodes_ready: number;
  /** Nodes that take no new pods. */
  readonly nodes_tainted: number;
  /** Pods in phase Pending. */
  readonly pending: number;
  /** Pending: waiting for a new node. */
  readonly pending_autoscaler: number;
  /** Pending: held by somebody's own gate. */
  readonly pending_foreign: number;
  /** Pending: held back by a gate. */
  readonly pending_gated: number;
  /** Pending: no node has room. */
  readonly pending_resources: number;
  /** Pending: no node matches. */
  readonly pending_selector: number;
  /** Pods that are wanted and not finished. */
  readonly pods: number;
  /** Container restarts, all pods together. */
  readonly restarts: number;
  /** Pods that run. */
  readonly running: number;
  /** Pods that start. */
  readonly starting: number;
  /** Pods that end. */
  readonly terminating: number;
  /** Power draw, modelled. */
  readonly watts: number;
  /** Workloads. */
  readonly workloads: number;
}

/** How late the cluster's autoscaling was, from the load to each step. */
export interface ReactionView {
  /** Until more replicas were wanted. */
  readonly decided_seconds: number | null;
  /** Until a node that came was ready. */
  readonly node_seconds: number | null;
  /** Until they ran; null: given up. */
  readonly running_seconds: number | null;
  /** Namespace and name. */
  readonly workload: string;
}

/** The backend's answer to one write. */
export interface ReceiptView {
  /** Cluster clock of the answer. */
  readonly at_seconds: number;
  /** What the backend said. */
  readonly detail: string;
  /** Id of the write: decision, action, number. */
  readonly intent: string;
  /** Why it is done and has no effect yet; empty otherwise. */
  readonly reservation: string;
  /** done, refused, failed or skipped. */
  readonly status: string;
  /** The write in words. */
  readonly write: string;
}

/** A record of another process is durable. */
export interface RecordAccepted {
  /** Its number in the journal. */
  readonly seq: number;
}

/** What an action came to after its settle window. */
export interface ResultView {
  /** Id of the action. */
  readonly action: string;
  /** Difference the action made; null: unknown. */
  readonly effect: EffectView | null;
  /** fork: against the same cluster without it; observed: the time before. */
  readonly method: string;
  /** Another action touched the same objects meanwhile. */
  readonly overlapped: boolean;
  /** What it earned; null: unknown. */
  readonly reward: RewardView | null;
  /** The result as a person reads it. */
  readonly sentence: string;
  /** Cluster clock at the end of the window. */
  readonly settled_seconds: number;
}

/** Reward by agent. */
export interface RewardView {
  /** The queue stays healthy (agent C). */
  readonly admission: number;
  /** Nothing idles (agent B). */
  readonly efficiency: number;
  /** Nothing dies (agent A). */
  readonly safety: number;
}

/** Reward by agent since this process began to watch, and in this cycle. */
export interface RewardsView {
  /** From the actions that settled in this cycle. */
  readonly last: RewardView;
  /** Sum over all settled actions. */
  readonly total: RewardView;
}

/** How many proposals met which fate. */
export interface RulingCounts {
  /** Chosen. */
  readonly chosen: number;
  /** Too old to be judged. */
  readonly expired: number;
  /** Lost to another proposal. */
  readonly overridden: number;
  /** Refused by the guard. */
  readonly refused: number;
}

/** What is being run. */
export interface RunView {
  /** sim or kubernetes. */
  readonly backend: string;
  /** Name of the cluster. */
  readonly cluster: string;
  /** Cluster time between two cycles. */
  readonly cycle_seconds: number;
  /** The kill switch is on. */
  readonly halted: boolean;
  /** Id of the run. */
  readonly id: string;
  /** How far each agent may go. */
  readonly modes: Readonly<Record<string, string>>;
  /** Name of the scenario; empty on a real cluster. */
  readonly scenario: string;
  /** Seed of the run. */
  readonly seed: number;
}

/** An autoscaler of the cluster's own. */
export interface ScalerView {
  /** Replicas there are. */
  readonly current: number;
  /** Replicas it wants. */
  readonly desired: number;
  /** Replicas it may want. */
  readonly maximum: number;
  /** Namespace and name of what it scales. */
  readonly workload: string;
}

/** An action whose result is still to come. */
export interface SettlingView {
  /** Id of the action. */
  readonly action: string;
  /** Registered name of the agent. */
  readonly agent: string;
  /** Agent title and action, such as "AgentA:replicate". */
  readonly label: string;
  /** Cluster clock at which it was decided. */
  readonly since_seconds: number;
  /** Short name of the object it acts on. */
  readonly target: string;
}

/** A feature whose population moved away from a forecaster's training data. */
export interface ShiftView {
  /** Its name. */
  readonly feature: string;
  /** Stability index; from 0.25 on it is told. */
  readonly index: number;
  /** nodes or pods. */
  readonly scope: string;
}

/** How old and complete one source of the snapshot is. */
export interface SourceView {
  /** Its age. */
  readonly age_seconds: number;
  /** How much of it arrived. */
  readonly completeness_permille: number;
  /** The source. */
  readonly name: string;
}

/** One stage of the run. */
export interface StageView {
  /** What it used or made. */
  readonly artifacts: ReadonlyArray<string>;
  /** Parts done. */
  readonly done: number;
  /** Name of the stage. */
  readonly name: string;
  /** Why it is disabled, or what it does. */
  readonly reason: string;
  /** How far it is. */
  readonly state: "disabled" | "done" | "pending" | "running";
  /** Parts in all; 0: not known. */
  readonly total: number;
}

/** Stages and self-checks. */
export interface StagesView {
  /** Self-checks. */
  readonly checks: ReadonlyArray<CheckView>;
  /** Stages of the run. */
  readonly stages: ReadonlyArray<StageView>;
}

/** All a page needs to begin with; the stream carries it on. */
export interface StateView {
  /** Self-checks. */
  readonly checks: ReadonlyArray<CheckView>;
  /** The latest cycle; null before the first. */
  readonly current: CycleView | null;
  /** Latest events, newest first. */
  readonly events: ReadonlyArray<EventView>;
  /** Series over the remembered cycles. */
  readonly history: HistoryView;
  /** Stages of the run. */
  readonly stages: ReadonlyArray<StageView>;
  /** Remembered cycles, oldest first. */
  readonly timeline: ReadonlyArray<TimelineEntry>;
  /** Version of the program. */
  readonly version: string;
}

/** One step of the loop and how fresh its work is. */
export interface StepView {
  /** Cluster time since then; null: never. */
  readonly age_seconds: number | null;
  /** Cluster clock when it last did something. */
  readonly done_seconds: number | null;
  /** How long it took then, wall milliseconds. */
  readonly duration_ms: number | null;
  /** The step. */
  readonly name: "act" | "arbitrate" | "explain" | "guard" | "observe" | "predict" | "propose" | "score";
  /** What it last did, in a few words. */
  readonly summary: string;
}

/** Stress that the exerciser puts on the cluster now. */
export interface StimulusView {
  /** The pressure it should cause. */
  readonly expects: string;
  /** Name of the stimulus. */
  readonly name: string;
  /** Cluster clock at which it began. */
  readonly since_seconds: number;
  /** What it is aimed at. */
  readonly target: string;
  /** When it ends; null: open. */
  readonly until_seconds: number | null;
}

/** One cycle as a mark on the timeline. */
export interface TimelineEntry {
  /** Agent of the headline; empty: nothing was done. */
  readonly agent: string;
  /** Cluster clock. */
  readonly at_seconds: number;
  /** Number of the cycle. */
  readonly cycle: number;
  /** Id of its decision. */
  readonly decision: string;
  /** What sort of decision. */
  readonly kind: "act" | "advise" | "nothing";
  /** Proposals that lost. */
  readonly overridden: number;
  /** Proposals that were refused. */
  readonly refused: number;
  /** The headline. */
  readonly title: string;
}

/** Something that is not as it should be, and why. */
export interface TroubleView {
  /** The cause, in words. */
  readonly cause: string;
  /** Pods concerned. */
  readonly count: number;
  /** The cluster's own words. */
  readonly sentence: string;
  /** What it has hold of. */
  readonly target: string;
}

/** The proposal that won over another one. */
export interface WinnerView {
  /** Registered name of its agent. */
  readonly agent: string;
  /** Its index among all proposals of the decision. */
  readonly index: number;
  /** Its label, such as "AgentA:replicate". */
  readonly label: string;
  /** Its score, 0 to 1. */
  readonly score: number | null;
  /** Short name of the object it aims at. */
  readonly target: string;
}

/** A workload outside its objective. */
export interface WorkloadView {
  /** Replicas that are wanted. */
  readonly desired: number;
  /** Observed 95th percentile. */
  readonly latency_ms: number;
  /** Namespace and name. */
  readonly name: string;
  /** What it should be; 0: none. */
  readonly objective_ms: number;
  /** Replicas that serve. */
  readonly ready: number;
}
