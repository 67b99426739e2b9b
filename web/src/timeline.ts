// SPDX-License-Identifier: Apache-2.0
// Past cycles as a strip of marks to click on.
import type { TimelineEntry } from "./api.ts";
import { clock } from "./format.ts";

/** One mark of the strip. */
export interface Mark {
  readonly cycle: number;
  readonly decision: string;
  readonly agent: string;
  readonly height: "tall" | "middle" | "short";
  /** A proposal lost to another one. */
  readonly lost: boolean;
  readonly refused: boolean;
  readonly label: string;
}

/** The latest marks that fit; a quiet cycle is short, one that acted is tall. */
export function marks(timeline: ReadonlyArray<TimelineEntry>, room: number): ReadonlyArray<Mark> {
  return timeline.slice(-room).map((entry) => ({
    cycle: entry.cycle,
    decision: entry.decision,
    agent: entry.agent,
    height: entry.kind === "act" ? "tall" : entry.kind === "advise" ? "middle" : "short",
    lost: entry.overridden > 0,
    refused: entry.refused > 0,
    label: `cycle ${entry.cycle}, ${clock(entry.at_seconds)}: ${entry.title}${fates(entry)}`,
  }));
}

function fates(entry: TimelineEntry): string {
  const lost = entry.overridden > 0 ? `, ${entry.overridden} lost` : "";
  const refused = entry.refused > 0 ? `, ${entry.refused} refused` : "";
  return `${lost}${refused}`;
}

/** The decision a key press moves to, or null where there is none. */
export function neighbor(shown: ReadonlyArray<Mark>, decision: string, step: -1 | 1): string | null {
  const at = shown.findIndex((mark) => mark.decision === decision);
  return shown[at < 0 ? shown.length - 1 : at + step]?.decision ?? null;
}
