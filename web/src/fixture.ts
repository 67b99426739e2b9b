// SPDX-License-Identifier: Apache-2.0
// Ordinary values for tests; each test changes what it is about.
import type { ActionView, CycleView, NodeView, ProposalView, StateView, StepView } from "./api.ts";

export function aProposal(changes: Partial<ProposalView> = {}): ProposalView {
  return {
    index: 0,
    agent: "safety",
    label: "AgentA:migrate",
    kind: "migrate",
    target: "worker-2",
    ref: "sim/node/worker-2",
    score: 0.78,
    priority: 1,
    reason: "worker-2 fails within 15 min with probability 0.78 (needs 0.70)",
    otherwise: "",
    evidence: [{ name: "risk 15 min", value: 0.78, unit: "", needs: 0.7 }],
    payload: {},
    expires_seconds: 100,
    ruling: "chosen",
    rule: "highest-rank",
    sentence: "nothing outranks it",
    mode: "enforce",
    beaten_by: null,
    used: null,
    allowed: null,
    free_at_seconds: null,
    ...changes,
  };
}

export function anAction(changes: Partial<ActionView> = {}): ActionView {
  return {
    id: "d1.0",
    proposal: 0,
    agent: "safety",
    kind: "migrate",
    target: "worker-2",
    writes: 2,
    expires_seconds: 900,
    restores: "",
    receipts: [],
    result: null,
    ...changes,
  };
}

export function aNode(changes: Partial<NodeView> = {}): NodeView {
  return {
    name: "worker-2",
    zone: "a",
    ready: true,
    tainted: false,
    power: "awake",
    pods: 11,
    cpu_permille: 400,
    memory_permille: 300,
    pressure_permille: 400,
    frequency_permille: 1000,
    watts: 130,
    errors_per_minute: 0,
    heartbeat_lag_ms: 20,
    age_seconds: 10,
    risk_permille: 20,
    driver: "",
    ...changes,
  };
}

export function aStep(changes: Partial<StepView> = {}): StepView {
  return { name: "act", done_seconds: 30, age_seconds: 0, duration_ms: 1.25, summary: "2 of 2 writes done", ...changes };
}

export function aCycle(number: number, changes: Partial<CycleView> = {}): CycleView {
  const none = { safety: 0, efficiency: 0, admission: 0 };
  return {
    cycle: number,
    at_seconds: 15 * number,
    wall_ms: 0,
    cycle_ms: 8,
    journal_bytes: 1000,
    run: { id: "r1", cluster: "sim", backend: "sim", scenario: "harbor", seed: 0, cycle_seconds: 15, modes: {}, halted: false },
    decision: {
      id: `d${number}`,
      cycle: number,
      at_seconds: 15 * number,
      kind: "act",
      title: "AgentA:migrate worker-2",
      headline: 0,
      rationale: "worker-2 fails within 15 min with probability 0.78 (needs 0.70)",
      margin: "",
      halted: false,
      halted_because: "",
      snapshot_digest: "",
      forecast_digest: "",
      proposals_total: 1,
      proposals: [aProposal()],
      rulings: { chosen: 1, overridden: 2, refused: 0, expired: 0 },
      actions: [],
    },
    forecast: {
      forecaster: "ewma-trend/1",
      riskiest: "worker-2",
      risk_permille: 780,
      driver: "14 errors/min",
      demand_median_millicores: 40_000,
      demand_upper_millicores: 50_000,
      capacity_millicores: 100_000,
      abstentions: [],
      drift: [],
    },
    cluster: {
      name: "sim",
      raw: {
        nodes: 3,
        nodes_ready: 3,
        nodes_tainted: 0,
        nodes_asleep: 0,
        nodes_dead: 0,
        pods: 30,
        pending: 12,
        pending_resources: 9,
        pending_selector: 3,
        pending_gated: 0,
        pending_autoscaler: 0,
        pending_foreign: 0,
        starting: 0,
        running: 18,
        failed: 0,
        terminating: 0,
        workloads: 5,
        restarts: 0,
        watts: 390,
      },
      interpreted: {
        queue_length: 9,
        queue_oldest_seconds: 45,
        unschedulable: 3,
        violations: 1,
        failed_pods: 0,
        awake: 3,
        overloaded: 0,
        requested_permille: 500,
        used_permille: 400,
        power_watts: 390,
      },
      nodes: [aNode({ errors_per_minute: 14, heartbeat_lag_ms: 6100 })],
      violating: [],
      gates: [],
      sources: [],
      troubles: [],
      scalers: [],
      reactions: [],
      stimuli: [],
    },
    steps: [aStep()],
    rewards: { total: { ...none, safety: number }, last: none },
    settled: [],
    settling: [],
    stages: [],
    checks: [],
    events: [
      {
        id: `${number}.0`,
        cycle: number,
        at_seconds: 15 * number,
        kind: "action",
        severity: "good",
        agent: "safety",
        decision: `d${number}`,
        text: `AgentA:migrate worker-2: done, 2 writes`,
      },
    ],
    ...changes,
  };
}

export function aState(current: CycleView | null = null): StateView {
  return {
    version: "0.1.0",
    current,
    timeline: [],
    history: {
      cycle: [],
      at_seconds: [],
      safety: [],
      efficiency: [],
      admission: [],
      queue: [],
      violations: [],
      failed_pods: [],
      power_watts: [],
      risk_permille: [],
    },
    events: [],
    stages: [],
    checks: [],
  };
}
