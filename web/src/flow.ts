// SPDX-License-Identifier: Apache-2.0
// The steps of the loop and how fresh their work is.
import type { StepView } from "./api.ts";
import { clock, millis, span } from "./format.ts";

/** One step as the flow draws it. */
export interface FlowStep {
  readonly name: string;
  readonly summary: string;
  /** How fresh, in words. */
  readonly age: string;
  readonly freshness: "fresh" | "older" | "never";
  readonly duration: string;
  readonly title: string;
}

/** The step; work of the current cycle is fresh. */
export function flowStep(step: StepView): FlowStep {
  const never = step.age_seconds === null || step.done_seconds === null;
  return {
    name: step.name,
    summary: step.summary,
    age: never ? "never" : step.age_seconds === 0 ? "this cycle" : `${span(step.age_seconds ?? 0)} ago`,
    freshness: never ? "never" : step.age_seconds === 0 ? "fresh" : "older",
    duration: millis(step.duration_ms),
    title: never ? `${step.name} has not done anything yet` : `${step.name} last at ${clock(step.done_seconds ?? 0)}`,
  };
}
