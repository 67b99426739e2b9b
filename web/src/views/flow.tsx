// SPDX-License-Identifier: Apache-2.0
import type { StepView } from "../api.ts";
import { flowStep } from "../flow.ts";

export function Flow({ steps }: { steps: ReadonlyArray<StepView> }) {
  return (
    <ol class="flow" aria-label="The loop" data-testid="flow">
      {steps.map(flowStep).map((step) => (
        <li key={step.name} class={step.freshness} title={step.title} data-testid={`step-${step.name}`}>
          <span class="name">{step.name}</span>
          <span class="took">{step.duration}</span>
          <span class="summary">{step.summary}</span>
          <span class="age">{step.age}</span>
        </li>
      ))}
    </ol>
  );
}
