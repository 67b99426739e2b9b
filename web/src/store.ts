// SPDX-License-Identifier: Apache-2.0
// The page's memory: what the server said, and what the person at the page chose to look at.
import { batch, computed, signal } from "@preact/signals";
import type { CycleView, ErrorView, StateView } from "./api.ts";
import { SILENT_MS, type Signs, badge, smoothed } from "./connection.ts";
import { carriedOn } from "./state.ts";

const NO_SIGNS: Signs = { open: false, ended: false, lastSign: 0, lastCycle: 0, spacing: 0 };
const RETRY_MS = 3_000;
const TICK_MS = 500;

/** The latest the server said; null before the first answer. */
const live = signal<StateView | null>(null);
/** What is shown while paused. */
const frozen = signal<StateView | null>(null);
/** A past cycle that is being looked at. */
const inspected = signal<CycleView | null>(null);
const signs = signal<Signs>(NO_SIGNS);
const now = signal(Date.now());

/** What could not be fetched, in one line; empty when all is well. */
export const trouble = signal("");
/** What the panels draw. */
export const shown = computed(() => frozen.value ?? live.value);
/** The cycle the panels draw: the one inspected, or the current one. */
export const cycle = computed(() => inspected.value ?? shown.value?.current ?? null);
export const isPaused = computed(() => frozen.value !== null);
export const isInspecting = computed(() => inspected.value !== null);
export const connection = computed(() => badge(signs.value, now.value));
/** Cycles that came while paused. */
export const behind = computed(() => {
  const held = frozen.value?.current?.cycle;
  const latest = live.value?.current?.cycle;
  return held === undefined || latest === undefined ? 0 : Math.max(0, latest - held);
});

/** Freeze the page as it is, or let it go on. */
export function togglePause(): void {
  frozen.value = frozen.value === null ? live.value : null;
}

/** Look at the cycle of a past decision. */
export async function inspect(decision: string): Promise<void> {
  if (decision === shown.value?.current?.decision.id) return backToLive();
  try {
    inspected.value = await fetched<CycleView>(`/v1/decisions/${encodeURIComponent(decision)}`);
    trouble.value = "";
  } catch (error) {
    trouble.value = `Decision ${decision} cannot be shown: ${lineOf(error)}`;
  }
}

/** Look at the current cycle again. */
export function backToLive(): void {
  batch(() => {
    inspected.value = null;
    trouble.value = "";
  });
}

/** Begin to listen; returns how to stop. */
export function listen(): () => void {
  let source = open();
  const timer = window.setInterval(() => {
    now.value = Date.now();
    const silent = now.value - signs.value.lastSign > SILENT_MS && signs.value.lastSign > 0;
    if (source.readyState === EventSource.CLOSED || (silent && now.value % RETRY_MS < TICK_MS)) {
      source.close();
      source = open();
    }
  }, TICK_MS);
  return () => {
    window.clearInterval(timer);
    source.close();
  };
}

function open(): EventSource {
  const source = new EventSource("/v1/stream");
  source.onopen = () => note({ open: true });
  source.onerror = () => note({ open: false });
  source.addEventListener("heartbeat", () => note({ open: true, lastSign: Date.now() }));
  source.addEventListener("end", () => note({ ended: true, lastSign: Date.now() }));
  source.addEventListener("cycle", (event: MessageEvent<string>) => take(JSON.parse(event.data) as CycleView));
  return source;
}

function note(change: Partial<Signs>): void {
  signs.value = { ...signs.value, ...change };
}

function take(next: CycleView): void {
  const moment = Date.now();
  const { lastCycle, spacing } = signs.value;
  const pace = lastCycle === 0 ? 0 : smoothed(spacing, moment - lastCycle);
  const state = live.value === null ? null : carriedOn(live.value, next);
  batch(() => {
    now.value = moment;
    note({ open: true, ended: false, lastSign: moment, lastCycle: moment, spacing: pace });
    if (state !== null) live.value = state;
  });
  if (state === null) void load();
}

let loading = false;

async function load(): Promise<void> {
  if (loading) return;
  loading = true;
  try {
    live.value = await fetched<StateView>("/v1/state");
    trouble.value = "";
  } catch (error) {
    trouble.value = `The state cannot be read: ${lineOf(error)}`;
  } finally {
    loading = false;
  }
}

async function fetched<T>(path: string): Promise<T> {
  const answer = await fetch(path);
  const body: unknown = await answer.json();
  if (!answer.ok) throw new Error((body as ErrorView).error.message);
  return body as T;
}

function lineOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
