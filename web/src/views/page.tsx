// SPDX-License-Identifier: Apache-2.0
// The one screen: where everything stands.
import * as store from "../store.ts";
import { ClusterPanel } from "./cluster.tsx";
import { DecisionPanel } from "./decision.tsx";
import { EventsPanel } from "./events.tsx";
import { Flow } from "./flow.tsx";
import { Header } from "./header.tsx";
import { ProposalsPanel } from "./proposals.tsx";
import { PressurePanel, RewardPanel } from "./rewards.tsx";
import { StagesPanel } from "./stages.tsx";
import { Timeline } from "./timeline.tsx";

export function Page() {
  const state = store.shown.value;
  const cycle = store.cycle.value;
  if (state === null || cycle === null) return <Waiting />;
  return (
    <div class={`page ${store.isInspecting.value ? "inspecting" : ""}`}>
      <Header cycle={cycle} version={state.version} />
      <Flow steps={cycle.steps} />
      <Timeline timeline={state.timeline} selected={cycle.decision.id} />
      <main class="columns">
        <div class="column">
          <DecisionPanel decision={cycle.decision} />
          <ProposalsPanel decision={cycle.decision} />
        </div>
        <div class="column">
          <RewardPanel history={state.history} rewards={cycle.rewards} />
          <PressurePanel history={state.history} />
          <EventsPanel events={state.events} />
        </div>
        <div class="column">
          <ClusterPanel cluster={cycle.cluster} forecast={cycle.forecast} now={cycle.at_seconds} />
          <StagesPanel stages={state.stages} checks={state.checks} />
        </div>
      </main>
    </div>
  );
}

function Waiting() {
  const connection = store.connection.value;
  return (
    <div class="waiting" role="status">
      <h1>Pilothouse</h1>
      <p data-testid="connection" data-state={connection.state}>
        {connection.text}
      </p>
      <p>{store.trouble.value || "The first cycle will appear here."}</p>
    </div>
  );
}
