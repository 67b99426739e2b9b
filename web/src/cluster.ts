// SPDX-License-Identifier: Apache-2.0
// The cluster as cells and pairs of numbers: what it says beside what we conclude.
import type { ClusterView, ForecastView, NodeView, ReactionView } from "./api.ts";
import { percent, risk, span, watts } from "./format.ts";

/** How a node or number looks. */
export type Level = "calm" | "busy" | "hot" | "bad" | "off";

/** One node in the grid. */
export interface NodeCell {
  readonly name: string;
  readonly level: Level;
  /** Pressure, 0 to 1, for the bar. */
  readonly fill: number;
  readonly pressure: string;
  readonly risk: string;
  /** The risk is worth a warning. */
  readonly risky: boolean;
  /** What it does: its state where that is special, its pods where it has any. */
  readonly state: string;
  /** Everything known, for the tooltip and for screen readers. */
  readonly title: string;
}

/** From here on the Safety agent throttles by default. */
const RISKY_PERMILLE = 500;
const HOT_PERMILLE = 850;
const BUSY_PERMILLE = 700;

/** The cell of one node. */
export function cellOf(node: NodeView): NodeCell {
  const risky = (node.risk_permille ?? 0) >= RISKY_PERMILLE;
  return {
    name: node.name,
    level: levelOf(node, risky),
    fill: Math.min(1, node.pressure_permille / 1000),
    pressure: percent(node.pressure_permille),
    risk: risk(node.risk_permille),
    risky,
    state: stateOf(node),
    title: titleOf(node),
  };
}

function levelOf(node: NodeView, risky: boolean): Level {
  if (node.power === "asleep" || node.power === "booting") return "off";
  if (!node.ready || node.power === "dead" || risky) return "bad";
  if (node.pressure_permille > HOT_PERMILLE) return "hot";
  return node.pressure_permille > BUSY_PERMILLE ? "busy" : "calm";
}

function stateOf(node: NodeView): string {
  const word = wordOf(node) || percent(node.pressure_permille);
  return node.pods > 0 ? `${word}, ${node.pods} pods` : word;
}

function wordOf(node: NodeView): string {
  if (node.power !== "awake") return node.power;
  if (!node.ready) return "not ready";
  if (node.tainted) return "tainted";
  return node.frequency_permille < 1000 ? `clock ${percent(node.frequency_permille)}` : "";
}

function titleOf(node: NodeView): string {
  const facts = [
    `${node.name} in ${node.zone || "no zone"}`,
    `${node.power}, ${node.ready ? "ready" : "not ready"}${node.tainted ? ", takes no new pods" : ""}`,
    `CPU ${percent(node.cpu_permille)}, memory ${percent(node.memory_permille)}, ${node.pods} pods`,
    `risk within 15 min ${risk(node.risk_permille)}${node.driver ? `: ${node.driver}` : ""}`,
    `${node.errors_per_minute} errors/min, heartbeat ${node.heartbeat_lag_ms} ms late`,
    `${watts(node.watts)} (modelled), clock ${percent(node.frequency_permille)}`,
    `usage is ${span(node.age_seconds)} old`,
  ];
  return facts.join("\n");
}

/** One line of "what it says" against "what we conclude". */
export interface Pair {
  readonly name: string;
  readonly raw: string;
  readonly interpreted: string;
  readonly level: Level;
}

const SENTENCE = 80;

/** The lines in which raw and interpreted numbers can disagree. */
export function pairs(cluster: ClusterView, forecast: ForecastView): ReadonlyArray<Pair> {
  const { raw, interpreted: seen } = cluster;
  return [
    {
      name: "waiting",
      raw: `${raw.pending} pending${causes(cluster)}`,
      interpreted: queueText(cluster),
      level: seen.queue_length >= 8 ? "hot" : seen.queue_length > 0 ? "busy" : "calm",
    },
    {
      name: "serving",
      raw: `${raw.running} running, ${raw.failed} failed, ${raw.starting} starting`,
      interpreted: `${seen.violations} of ${raw.workloads} workloads outside their objective`,
      level: seen.violations > 0 || seen.failed_pods > 0 ? "hot" : "calm",
    },
    {
      name: "nodes",
      raw: `${raw.nodes_ready} of ${raw.nodes} ready, ${raw.nodes_tainted} tainted, ${raw.nodes_asleep} asleep`,
      interpreted: `${seen.awake} usable, ${seen.overloaded} overloaded`,
      level: raw.nodes_dead > 0 || seen.overloaded > 0 ? "hot" : "calm",
    },
    {
      name: "CPU",
      raw: `${percent(seen.used_permille)} used, ${percent(seen.requested_permille)} requested`,
      interpreted: demandText(forecast),
      level: seen.requested_permille > 900 ? "busy" : "calm",
    },
    {
      name: "risk",
      raw: riskiestRaw(cluster, forecast),
      interpreted: forecast.riskiest ? `${forecast.riskiest} fails in 15 min: ${risk(forecast.risk_permille)}` : "no forecast",
      level: (forecast.risk_permille ?? 0) >= RISKY_PERMILLE ? "bad" : "calm",
    },
    ...cluster.troubles.map((trouble) => ({
      name: "trouble",
      raw: `${trouble.cause}: ${short(trouble.sentence)}`,
      interpreted: `${trouble.target}${trouble.count > 1 ? `, ${trouble.count} pods` : ""}`,
      level: "hot" as const,
    })),
    ...cluster.scalers.map((scaler) => ({
      name: "scaling",
      raw: `${scaler.current} of ${scaler.desired} wanted replicas, at most ${scaler.maximum}`,
      interpreted: scaler.workload,
      level: "busy" as const,
    })),
    ...cluster.reactions.map((reaction) => ({
      name: "scaled",
      raw: reactionText(reaction),
      interpreted: reaction.workload,
      level: "calm" as const,
    })),
  ];
}

/** The cluster's own words can be long; the record has all of them. */
function short(text: string): string {
  return text.length > SENTENCE ? `${text.slice(0, SENTENCE)}…` : text;
}

/** How late each step was, counted from the load. */
export function reactionText(reaction: ReactionView): string {
  const steps = [
    reaction.decided_seconds === null ? "never decided" : `decided after ${span(reaction.decided_seconds)}`,
    reaction.node_seconds === null ? "" : `node ready after ${span(reaction.node_seconds)}`,
    reaction.running_seconds === null ? "given up" : `running after ${span(reaction.running_seconds)}`,
  ];
  return steps.filter((step) => step !== "").join(", ");
}

function causes(cluster: ClusterView): string {
  const { raw } = cluster;
  const parts = [
    raw.pending_resources > 0 ? `${raw.pending_resources} no room` : "",
    raw.pending_selector > 0 ? `${raw.pending_selector} no match` : "",
    raw.pending_gated > 0 ? `${raw.pending_gated} gated` : "",
    raw.pending_autoscaler > 0 ? `${raw.pending_autoscaler} autoscaler` : "",
    raw.pending_foreign > 0 ? `${raw.pending_foreign} somebody's gate` : "",
  ].filter((part) => part !== "");
  return parts.length > 0 ? ` (${parts.join(", ")})` : "";
}

function queueText(cluster: ClusterView): string {
  const seen = cluster.interpreted;
  const oldest = seen.queue_length > 0 ? `, oldest ${span(seen.queue_oldest_seconds)}` : "";
  const never = seen.unschedulable > 0 ? `; ${seen.unschedulable} can never run` : "";
  return `queue ${seen.queue_length}${oldest}${never}`;
}

function demandText(forecast: ForecastView): string {
  if (forecast.capacity_millicores === 0) return "no awake capacity";
  const upper = Math.round((100 * forecast.demand_upper_millicores) / forecast.capacity_millicores);
  return `p95 demand in 15 min: ${upper} %`;
}

function riskiestRaw(cluster: ClusterView, forecast: ForecastView): string {
  const node = cluster.nodes.find((one) => one.name === forecast.riskiest);
  if (node === undefined) return "–";
  return `${node.errors_per_minute} errors/min, heartbeat ${node.heartbeat_lag_ms} ms late`;
}
