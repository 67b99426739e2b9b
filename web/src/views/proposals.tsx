// SPDX-License-Identifier: Apache-2.0
import type { DecisionView } from "../api.ts";
import { type ProposalRow, rowOf } from "../proposals.ts";

export function ProposalsPanel({ decision }: { decision: DecisionView }) {
  const rows = decision.proposals.map((proposal) => rowOf(proposal, decision.headline));
  const hidden = decision.proposals_total - rows.length;
  const { chosen, overridden, refused, expired } = decision.rulings;
  return (
    <section class="panel proposals grows" aria-labelledby="proposals-heading">
      <h2 id="proposals-heading">
        Proposals
        <span class="when">
          {chosen} chosen, {overridden} overridden, {refused} refused, {expired} expired
        </span>
      </h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Proposals of this cycle">
        <table data-testid="proposals">
          <thead>
            <tr>
              <th scope="col">Verdict</th>
              <th scope="col">Wanted, with the evidence; who beat it and why</th>
              <th scope="col" class="right">
                Score
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Row key={row.key} row={row} />
            ))}
          </tbody>
        </table>
        {hidden > 0 && <p class="dim">and {hidden} more that are not shown</p>}
      </div>
    </section>
  );
}

function Row({ row }: { row: ProposalRow }) {
  return (
    <tr class={row.headline ? "chosen-row" : ""} data-testid="proposal" data-ruling={row.verdict} data-index={row.key}>
      <td>
        <span class={`badge ${row.tone}`} data-testid="verdict">
          {row.verdict}
        </span>
      </td>
      <td>
        <span class={`dot agent-${row.agent}`} aria-hidden="true" />
        <b data-testid="label">{row.label}</b> <span data-testid="target">{row.target}</span>
        <span class="reason" data-testid="reason">
          {row.reason}
        </span>
        <span class="numbers" data-testid="evidence">
          {row.evidence.map((one) => (
            <span key={one.text}>
              {one.text}
              {one.needs !== "" && ` (${one.needs})`}
            </span>
          ))}
        </span>
        <span class={`why ${row.tone}`}>
          {row.lostTo !== "" && (
            <>
              {row.lostTo} <b data-testid="beaten-by">{row.beatenBy}</b>:{" "}
            </>
          )}
          <span data-testid="why">{row.why}</span>
        </span>
      </td>
      <td class="right">
        <span class="number" data-testid="score">
          {row.score}
        </span>
        <meter class={`bar agent-${row.agent}`} min={0} max={1} value={row.share} aria-label="score" />
      </td>
    </tr>
  );
}
