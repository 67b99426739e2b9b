// SPDX-License-Identifier: Apache-2.0
import type { CycleView } from "../api.ts";
import { bytes, clock, millis } from "../format.ts";
import * as store from "../store.ts";

export function Header({ cycle, version }: { cycle: CycleView; version: string }) {
  const { run } = cycle;
  return (
    <header class="header">
      <h1>
        Pilothouse <small>{version}</small>
      </h1>
      <dl class="facts">
        <Fact name="cluster" value={run.cluster} />
        <Fact name="scenario" value={run.scenario || "–"} />
        <Fact name="seed" value={String(run.seed)} />
        <Fact name="cycle" value={String(cycle.cycle)} testid="cycle" />
        <Fact name="clock" value={clock(cycle.at_seconds)} testid="clock" />
        <Fact name="took" value={millis(cycle.cycle_ms)} />
        <Fact name="journal" value={bytes(cycle.journal_bytes)} />
      </dl>
      <Modes modes={run.modes} halted={run.halted} because={cycle.decision.halted_because} />
      <Controls />
    </header>
  );
}

function Fact({ name, value, testid }: { name: string; value: string; testid?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd data-testid={testid}>{value}</dd>
    </div>
  );
}

type ModesProps = { modes: CycleView["run"]["modes"]; halted: boolean; because: string };

function Modes({ modes, halted, because }: ModesProps) {
  const special = Object.entries(modes).filter(([, mode]) => mode !== "enforce");
  if (halted)
    return (
      <span class="badge bad" data-testid="halted">
        halted: nothing acts{because !== "" && ` (${because})`}
      </span>
    );
  if (special.length === 0) return <span class="badge dim">all enforce</span>;
  return <span class="badge warn">{special.map(([agent, mode]) => `${agent}: ${mode}`).join(", ")}</span>;
}

function Controls() {
  const connection = store.connection.value;
  const paused = store.isPaused.value;
  const late = store.behind.value;
  return (
    <div class="controls">
      {store.trouble.value !== "" && (
        <span class="badge bad" role="alert">
          {store.trouble.value}
        </span>
      )}
      <button
        type="button"
        class="back"
        data-testid="back-to-live"
        hidden={!store.isInspecting.value}
        onClick={store.backToLive}
      >
        past cycle: back to now
      </button>
      <button type="button" data-testid="pause" aria-pressed={paused} onClick={store.togglePause}>
        {paused ? `Go on${late > 0 ? ` (${late} behind)` : ""}` : "Pause"}
      </button>
      <span
        class={`connection ${connection.state}`}
        data-testid="connection"
        data-state={connection.state}
        role="status"
      >
        {connection.text}
      </span>
    </div>
  );
}
