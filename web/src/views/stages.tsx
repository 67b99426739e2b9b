// SPDX-License-Identifier: Apache-2.0
import type { CheckView, StageView } from "../api.ts";
import { clock } from "../format.ts";

const TONE: Readonly<Record<StageView["state"], string>> = {
  pending: "dim",
  running: "live",
  done: "good",
  disabled: "dim",
};

export function StagesPanel({ stages, checks }: { stages: ReadonlyArray<StageView>; checks: ReadonlyArray<CheckView> }) {
  const warnings = checks.filter((check) => !check.ok);
  return (
    <section class="panel stages" aria-labelledby="stages-heading" data-testid="stages">
      <h2 id="stages-heading">
        Stages and self-checks
        <span class={warnings.length > 0 ? "when warn" : "when"}>
          {warnings.length === 0 ? "no warning" : warnings.length === 1 ? "1 warning" : `${warnings.length} warnings`}
        </span>
      </h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Stages and self-checks">
        <ul class="rows">
          {warnings.map((check) => (
            <li key={check.name} class="warning" data-testid="warning">
              <span class="badge warn">{check.name}</span>
              <span title={`since ${clock(check.since_seconds)}`}>{check.sentence}</span>
            </li>
          ))}
          {stages.map((stage) => (
            <li key={stage.name} data-testid="stage">
              <span class={`badge ${TONE[stage.state]}`}>{stage.state}</span>
              <b>{stage.name}</b>
              <span class="dim">
                {stage.total > 0 && stage.state === "running" && `${stage.done} of ${stage.total} `}
                {stage.reason} {stage.artifacts.join(", ")}
              </span>
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}
