// SPDX-License-Identifier: Apache-2.0
import type { ActionView, DecisionView } from "../api.ts";
import { clock, score, signed } from "../format.ts";
import { answerOf, outcomeOf } from "../proposals.ts";

const KIND_TONE: Readonly<Record<DecisionView["kind"], string>> = { act: "good", advise: "warn", nothing: "dim" };
const KIND_WORD: Readonly<Record<DecisionView["kind"], string>> = {
  act: "acted",
  advise: "advised only",
  nothing: "did nothing",
};

export function DecisionPanel({ decision }: { decision: DecisionView }) {
  const head = decision.proposals.find((proposal) => proposal.index === decision.headline);
  return (
    <section class="panel decision" aria-labelledby="decision-heading" data-testid="decision">
      <h2 id="decision-heading">
        Decision <code data-testid="decision-id">{decision.id}</code>
        <span class="when">
          cycle {decision.cycle}, {clock(decision.at_seconds)}
        </span>
      </h2>
      <p class={`headline agent-${head?.agent ?? "none"}`}>
        <span class={`badge ${KIND_TONE[decision.kind]}`}>{KIND_WORD[decision.kind]}</span>
        <strong data-testid="decision-title">{decision.title}</strong>
        {head !== undefined && (
          <span class="number" data-testid="decision-score">
            {score(head.score)}
          </span>
        )}
      </p>
      <dl class="sentences">
        <dt>Because</dt>
        <dd data-testid="decision-rationale">{decision.rationale}</dd>
        {decision.halted && (
          <>
            <dt>Halted</dt>
            <dd data-testid="decision-halted">{decision.halted_because || "by a person, who gave no reason"}</dd>
          </>
        )}
        <dt>Margin</dt>
        <dd data-testid="decision-margin">{decision.margin || "–"}</dd>
        <dt>Done</dt>
        <dd>
          <Actions actions={decision.actions} />
        </dd>
      </dl>
    </section>
  );
}

function Actions({ actions }: { actions: ReadonlyArray<ActionView> }) {
  if (actions.length === 0) return <>nothing was written to the cluster</>;
  return (
    <ul class="actions">
      {actions.map((action) => {
        const answer = answerOf(action);
        return (
          <li key={action.id} data-testid="action">
            <span class={`dot agent-${action.agent}`} aria-hidden="true" />
            <b>
              {action.kind} {action.target}
            </b>{" "}
            <span class={answer.tone} title={action.receipts.map((r) => `${r.write} (${r.status}) ${r.detail}`).join("\n")}>
              {answer.text}
            </span>
            {action.expires_seconds !== null && <span class="dim"> until {clock(action.expires_seconds)}</span>}
            <span class="outcome">
              {outcomeOf(action)}
              <Reward action={action} />
            </span>
          </li>
        );
      })}
    </ul>
  );
}

function Reward({ action }: { action: ActionView }) {
  const reward = action.result?.reward;
  if (reward === undefined || reward === null) return null;
  return (
    <span class="reward">
      {" "}
      A {signed(reward.safety)} B {signed(reward.efficiency)} C {signed(reward.admission)}
    </span>
  );
}
