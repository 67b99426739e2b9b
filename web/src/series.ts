// SPDX-License-Identifier: Apache-2.0
// History as the columns a chart draws.
import type { HistoryView } from "./api.ts";

/** x, then one column per line. */
export type Columns = [number[], ...(number | null)[][]];

/** Reward by agent over cluster time. */
export function rewardColumns(history: HistoryView): Columns {
  return [[...history.at_seconds], [...history.safety], [...history.efficiency], [...history.admission]];
}

/** Queue, violations and failed pods on one axis, power on the other. */
export function pressureColumns(history: HistoryView): Columns {
  return [
    [...history.at_seconds],
    [...history.queue],
    [...history.violations],
    [...history.failed_pods],
    [...history.power_watts],
  ];
}
