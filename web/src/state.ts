// SPDX-License-Identifier: Apache-2.0
// What the page knows: the state it began with, carried on by one cycle after the other.
import type { CycleView, HistoryView, StateView, TimelineEntry } from "./api.ts";

/** Cycles the page remembers, as many as the server does. */
export const REMEMBERED = 600;
/** Lines the event list keeps. */
export const EVENTS = 300;

/** The state after one more cycle, or null when cycles in between were missed: ask for it anew. */
export function carriedOn(state: StateView, cycle: CycleView): StateView | null {
  const last = state.current;
  if (last !== null && last.run.id !== cycle.run.id) return null;
  if (last !== null && cycle.cycle === last.cycle) return { ...state, current: cycle };
  if (last !== null && cycle.cycle !== last.cycle + 1) return null;
  return {
    ...state,
    current: cycle,
    timeline: appended(state.timeline, markOf(cycle)),
    history: withCycle(state.history, cycle),
    events: [...cycle.events, ...state.events].slice(0, EVENTS),
    stages: cycle.stages,
    checks: cycle.checks,
  };
}

/** A cycle as a mark on the timeline. */
export function markOf(cycle: CycleView): TimelineEntry {
  const decision = cycle.decision;
  const headline = decision.proposals.find((proposal) => proposal.index === decision.headline);
  return {
    cycle: cycle.cycle,
    at_seconds: cycle.at_seconds,
    decision: decision.id,
    kind: decision.kind,
    agent: headline?.agent ?? "",
    title: decision.title,
    overridden: decision.rulings.overridden,
    refused: decision.rulings.refused,
  };
}

function withCycle(history: HistoryView, cycle: CycleView): HistoryView {
  const total = cycle.rewards.total;
  const seen = cycle.cluster.interpreted;
  return {
    cycle: appended(history.cycle, cycle.cycle),
    at_seconds: appended(history.at_seconds, cycle.at_seconds),
    safety: appended(history.safety, total.safety),
    efficiency: appended(history.efficiency, total.efficiency),
    admission: appended(history.admission, total.admission),
    queue: appended(history.queue, seen.queue_length),
    violations: appended(history.violations, seen.violations),
    failed_pods: appended(history.failed_pods, seen.failed_pods),
    power_watts: appended(history.power_watts, seen.power_watts),
    risk_permille: appended(history.risk_permille, cycle.forecast.risk_permille),
  };
}

function appended<T>(list: ReadonlyArray<T>, item: T): ReadonlyArray<T> {
  return [...list, item].slice(-REMEMBERED);
}
