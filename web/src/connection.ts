// SPDX-License-Identifier: Apache-2.0
// Whether what is on the screen is alive. Old numbers that look current are worse than none.
import { span } from "./format.ts";

/** What is known about the stream; times are wall milliseconds of this browser. */
export interface Signs {
  /** The stream is open. */
  readonly open: boolean;
  /** The server said that the run is over. */
  readonly ended: boolean;
  /** When anything last came: a cycle or a heartbeat. */
  readonly lastSign: number;
  /** When a cycle last came. */
  readonly lastCycle: number;
  /** Usual time between two cycles. */
  readonly spacing: number;
}

/** What the badge shows. */
export interface Badge {
  readonly state: "live" | "stale" | "disconnected" | "ended" | "connecting";
  readonly text: string;
}

/** A stream that is silent for longer than two heartbeats is dead, whatever the socket thinks. */
export const SILENT_MS = 12_000;
/** No loop is called stale before this. */
export const PATIENCE_MS = 4_000;

/** The badge for these signs at this moment. */
export function badge(signs: Signs, now: number): Badge {
  if (signs.lastSign === 0 && !signs.open) return { state: "connecting", text: "connecting" };
  const quiet = now - signs.lastCycle;
  if (signs.ended) return { state: "ended", text: "run is over" };
  if (!signs.open || now - signs.lastSign > SILENT_MS) {
    const since = signs.lastSign === 0 ? "" : ` for ${span((now - signs.lastSign) / 1000)}`;
    return { state: "disconnected", text: `disconnected${since}` };
  }
  if (signs.lastCycle === 0) return { state: "connecting", text: "waiting for the first cycle" };
  if (quiet > Math.max(PATIENCE_MS, 4 * signs.spacing)) {
    return { state: "stale", text: `stale for ${span(quiet / 1000)}` };
  }
  return { state: "live", text: "live" };
}

/** The usual spacing, smoothed; the first sample is taken as it is. */
export function smoothed(spacing: number, sample: number): number {
  return spacing === 0 ? sample : 0.7 * spacing + 0.3 * sample;
}
