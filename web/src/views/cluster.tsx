// SPDX-License-Identifier: Apache-2.0
import type { ClusterView, ForecastView } from "../api.ts";
import { type NodeCell, cellOf, pairs } from "../cluster.ts";
import { clock, span, watts } from "../format.ts";

interface Props {
  readonly cluster: ClusterView;
  readonly forecast: ForecastView;
  readonly now: number;
}

export function ClusterPanel({ cluster, forecast, now }: Props) {
  const { raw, interpreted } = cluster;
  return (
    <section class="panel cluster grows" aria-labelledby="cluster-heading" data-testid="cluster">
      <h2 id="cluster-heading">
        Cluster {cluster.name}
        <span class="when" data-testid="power">
          {watts(interpreted.power_watts)} modelled
        </span>
      </h2>
      <table class="pairs">
        <thead>
          <tr>
            <th scope="col" aria-label="What" />
            <th scope="col">the cluster says</th>
            <th scope="col">we conclude</th>
          </tr>
        </thead>
        <tbody>
          {pairs(cluster, forecast).map((pair) => (
            <tr key={`${pair.name} ${pair.interpreted}`} data-testid={`pair-${pair.name}`}>
              <th scope="row">{pair.name}</th>
              <td>{pair.raw}</td>
              <td class={`level-${pair.level}`}>{pair.interpreted}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <ul class="notes">
        <Notes cluster={cluster} forecast={forecast} now={now} />
      </ul>
      <ul class="nodes scroll" tabIndex={0} aria-label="Nodes, worst first" data-testid="nodes">
        {cluster.nodes.map(cellOf).map((cell) => (
          <Node key={cell.name} cell={cell} />
        ))}
        {raw.nodes > cluster.nodes.length && <li class="dim">{raw.nodes - cluster.nodes.length} calmer nodes</li>}
      </ul>
    </section>
  );
}

function Node({ cell }: { cell: NodeCell }) {
  return (
    <li class={`node level-${cell.level}`} title={cell.title} data-testid="node">
      <span class="name">{cell.name}</span>
      <span class={cell.risky ? "risk risky" : "risk"}>{cell.risk}</span>
      <meter class="bar" min={0} max={1} value={cell.fill} aria-label={`pressure ${cell.pressure}`} />
      <span class="state">{cell.state}</span>
    </li>
  );
}

function Notes({ cluster, forecast, now }: Props) {
  const stale = cluster.sources.filter((source) => source.age_seconds > 30 || source.completeness_permille < 950);
  return (
    <>
      {cluster.stimuli.map((stimulus) => (
        <li key={`${stimulus.name}${stimulus.target}`} data-testid="stimulus">
          <span class="badge stimulus">stimulus</span> {stimulus.name} {stimulus.target}, for{" "}
          {span(now - stimulus.since_seconds)}: {stimulus.expects}
        </li>
      ))}
      {cluster.gates.map((gate) => (
        <li key={gate.namespace}>
          <span class="badge admission">gate</span> {gate.namespace}: {gate.gate}
        </li>
      ))}
      {stale.map((source) => (
        <li key={source.name}>
          <span class="badge warn">source</span> {source.name} is {span(source.age_seconds)} old
        </li>
      ))}
      {forecast.abstentions.map((one) => (
        <li key={one.scope}>
          <span class="badge dim">no forecast</span> {one.scope}: {one.reason}
          {one.until_seconds !== null && `, until ${clock(one.until_seconds)}`}
        </li>
      ))}
      {forecast.drift.map((shift) => (
        <li key={`${shift.scope}${shift.feature}`} data-testid="drift">
          <span class="badge warn">drift</span> {shift.scope}: {shift.feature} moved away from training, stability
          index {shift.index.toFixed(2)} (told from 0.25 on)
        </li>
      ))}
      {cluster.violating.map((workload) => (
        <li key={workload.name}>
          <span class="badge warn">violation</span> {workload.name} {workload.latency_ms} ms (objective{" "}
          {workload.objective_ms}), {workload.ready} of {workload.desired} ready
        </li>
      ))}
    </>
  );
}
