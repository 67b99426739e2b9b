// SPDX-License-Identifier: Apache-2.0
// Who wanted what, who lost and why, as rows of a table.
import type { ActionView, EvidenceView, ProposalView } from "./api.ts";
import { clock, plain, score } from "./format.ts";

/** What a proposal's fate looks like. */
export type Tone = "good" | "warn" | "bad" | "dim";

/** One row of the proposals table. */
export interface ProposalRow {
  readonly key: number;
  readonly agent: string;
  readonly label: string;
  readonly target: string;
  readonly score: string;
  /** 0 to 1, for the bar under the number. */
  readonly share: number;
  readonly verdict: string;
  readonly tone: Tone;
  readonly evidence: ReadonlyArray<EvidenceText>;
  /** "lost to" or "refused by"; empty for a winner. */
  readonly lostTo: string;
  /** Who or what beat it: the winner's label, or the guard-rail; empty for a winner. */
  readonly beatenBy: string;
  /** Why, as the rule says it. */
  readonly why: string;
  readonly reason: string;
  readonly headline: boolean;
}

/** One number of the evidence. */
export interface EvidenceText {
  readonly text: string;
  /** The threshold, where there is one. */
  readonly needs: string;
}

const TONES: Readonly<Record<ProposalView["ruling"], Tone>> = {
  chosen: "good",
  overridden: "warn",
  refused: "bad",
  expired: "dim",
};

/** The row of one proposal; `headline` is the index the decision shows first. */
export function rowOf(proposal: ProposalView, headline: number | null): ProposalRow {
  const idle = proposal.kind === "noop";
  return {
    key: proposal.index,
    agent: proposal.agent,
    label: proposal.label,
    target: proposal.target,
    score: score(proposal.score),
    share: Math.min(1, Math.max(0, proposal.score ?? 0)),
    verdict: verdictWord(proposal),
    tone: idle ? "dim" : TONES[proposal.ruling],
    evidence: proposal.evidence.map(evidenceText),
    lostTo: lostTo(proposal),
    beatenBy: beatenBy(proposal),
    why: idle ? "" : why(proposal), // an agent that wants nothing has said so in its reason
    reason: proposal.reason,
    headline: proposal.index === headline,
  };
}

function verdictWord(proposal: ProposalView): string {
  if (proposal.kind === "noop" && proposal.ruling === "chosen") return "no wish";
  if (proposal.ruling === "chosen" && proposal.mode !== "enforce") return `chosen, ${proposal.mode}`;
  return proposal.ruling;
}

function evidenceText(evidence: EvidenceView): EvidenceText {
  const unit = evidence.unit ? ` ${evidence.unit}` : "";
  return {
    text: `${evidence.name} ${plain(evidence.value)}${unit}`,
    needs: evidence.needs === null ? "" : `needs ${plain(evidence.needs)}`,
  };
}

function lostTo(proposal: ProposalView): string {
  if (proposal.beaten_by !== null) return "lost to";
  return proposal.ruling === "refused" ? "refused by" : "";
}

function beatenBy(proposal: ProposalView): string {
  const winner = proposal.beaten_by;
  if (winner !== null) return `${winner.label} ${winner.target} (${score(winner.score)})`;
  return proposal.ruling === "refused" ? `the guard's ${proposal.rule}` : "";
}

function why(proposal: ProposalView): string {
  const room = proposal.free_at_seconds;
  const when = room === null || proposal.sentence.includes("free at") ? "" : `, free at ${clock(room)}`;
  return `${proposal.sentence}${when}`;
}

/** How an action went, in one line. */
export function answerOf(action: ActionView): { readonly text: string; readonly tone: Tone } {
  const failed = action.receipts.filter((receipt) => receipt.status !== "done");
  const first = failed[0];
  if (first !== undefined) {
    const detail = first.detail ? `: ${first.detail}` : "";
    return { text: `${failed.length} of ${action.writes} ${first.status}${detail}`, tone: "bad" };
  }
  if (action.receipts.length === 0) return { text: "no answer yet", tone: "warn" };
  const held = action.receipts.find((receipt) => receipt.reservation !== "");
  const done = action.writes === 1 ? "1 write done" : `${action.writes} writes done`;
  if (held !== undefined) return { text: `${done}, not in force: ${held.reservation}`, tone: "warn" };
  return { text: done, tone: "good" };
}

/** What an action came to, in one line. */
export function outcomeOf(action: ActionView): string {
  if (action.result === null) return "settling: its effect is not known yet";
  const flag = action.result.overlapped ? " (another action touched the same objects)" : "";
  return `${action.result.sentence}${flag}`;
}
