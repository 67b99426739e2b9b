// SPDX-License-Identifier: Apache-2.0
import { useMemo } from "preact/hooks";
import type { HistoryView, RewardsView } from "../api.ts";
import { plain, signed, watts } from "../format.ts";
import { pressureColumns, rewardColumns } from "../series.ts";
import { Chart, type Line } from "./chart.tsx";

const REWARDS: ReadonlyArray<Line> = [
  { name: "safety", color: "--safety" },
  { name: "efficiency", color: "--efficiency" },
  { name: "admission", color: "--admission" },
];
const PRESSURE: ReadonlyArray<Line> = [
  { name: "queue", color: "--admission" },
  { name: "violations", color: "--warn" },
  { name: "failed", color: "--bad" },
  { name: "modelled", color: "--dim", right: true },
];

export function RewardPanel({ history, rewards }: { history: HistoryView; rewards: RewardsView }) {
  const columns = useMemo(() => rewardColumns(history), [history]);
  const { total } = rewards;
  const values = [total.safety, total.efficiency, total.admission].map(signed);
  return (
    <section class="panel rewards" aria-labelledby="rewards-heading" data-testid="rewards">
      <h2 id="rewards-heading">
        Reward <Legend lines={REWARDS} values={values} />
      </h2>
      <Chart label={`Reward per agent over time: ${values.join(", ")}`} columns={columns} lines={REWARDS} floor={1} />
    </section>
  );
}

export function PressurePanel({ history }: { history: HistoryView }) {
  const columns = useMemo(() => pressureColumns(history), [history]);
  const values = [
    plain(history.queue.at(-1) ?? null),
    plain(history.violations.at(-1) ?? null),
    plain(history.failed_pods.at(-1) ?? null),
    watts(history.power_watts.at(-1) ?? 0),
  ];
  return (
    <section class="panel pressure" aria-labelledby="pressure-heading">
      <h2 id="pressure-heading">
        Load <Legend lines={PRESSURE} values={values} />
      </h2>
      <Chart label="Queue, violations, failed pods and power over time" columns={columns} lines={PRESSURE} floor={8} />
    </section>
  );
}

function Legend({ lines, values }: { lines: ReadonlyArray<Line>; values: ReadonlyArray<string> }) {
  return (
    <span class="legend">
      {lines.map((line, index) => (
        <span key={line.name} class={`key ${line.color.slice(2)}`}>
          {line.name} <b>{values[index]}</b>
        </span>
      ))}
    </span>
  );
}
