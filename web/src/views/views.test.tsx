// SPDX-License-Identifier: Apache-2.0
// Views draw what they are given, as text.
import { render } from "preact";
import { beforeEach, describe, expect, it } from "vitest";
import { aCycle, aProposal, aStep } from "../fixture.ts";
import { ClusterPanel } from "./cluster.tsx";
import { DecisionPanel } from "./decision.tsx";
import { EventsPanel } from "./events.tsx";
import { Flow } from "./flow.tsx";
import { Header } from "./header.tsx";
import { ProposalsPanel } from "./proposals.tsx";
import { StagesPanel } from "./stages.tsx";

let root: HTMLElement;

beforeEach(() => {
  root = document.createElement("div");
});

const text = (id: string): string => root.querySelector(`[data-testid="${id}"]`)?.textContent ?? "";

describe("views", () => {
  it("show the decision with its rationale", () => {
    render(<DecisionPanel decision={aCycle(7).decision} />, root);
    expect(text("decision-id")).toBe("d7");
    expect(text("decision-score")).toBe("0.78");
    expect(text("decision-rationale")).toContain("probability 0.78");
  });

  it("say why nothing acts while halted, and nothing of it otherwise", () => {
    const cycle = aCycle(1);
    const halted = { ...cycle.decision, halted: true, halted_because: "drill" };
    render(<DecisionPanel decision={halted} />, root);
    expect(text("decision-halted")).toBe("drill");
    render(<Header cycle={{ ...cycle, run: { ...cycle.run, halted: true }, decision: halted }} version="1" />, root);
    expect(text("halted")).toBe("halted: nothing acts (drill)");
    render(<DecisionPanel decision={cycle.decision} />, root);
    expect(text("decision-halted")).toBe("");
  });

  it("show a refused decision with its reason", () => {
    const refused = aProposal({ ruling: "refused", rule: "dwell", sentence: "rests for 120 s" });
    const decision = { ...aCycle(1).decision, proposals: [refused], proposals_total: 9 };
    render(<ProposalsPanel decision={decision} />, root);
    expect(text("beaten-by")).toBe("the guard's dwell");
    expect(text("why")).toBe("rests for 120 s");
    expect(root.textContent).toContain("and 8 more");
  });

  it("never turn text of the cluster into markup", () => {
    const wild = "<img src=x onerror=alert(1)>";
    const decision = { ...aCycle(1).decision, title: wild, rationale: wild, proposals: [aProposal({ target: wild, reason: wild })] };
    render(<DecisionPanel decision={decision} />, root);
    expect(root.querySelector("img")).toBeNull();
    render(<ProposalsPanel decision={decision} />, root);
    expect(root.querySelector("img")).toBeNull();
    expect(text("target")).toBe(wild);
  });

  it("show the flow, the nodes, the events and a warning", () => {
    const cycle = aCycle(3);
    render(<Flow steps={[aStep()]} />, root);
    expect(text("step-act")).toContain("this cycle");
    render(<ClusterPanel cluster={cycle.cluster} forecast={cycle.forecast} now={45} />, root);
    expect(text("node")).toContain("worker-2");
    render(<EventsPanel events={cycle.events} />, root);
    expect(text("events")).toContain("AgentA:migrate worker-2");
    const check = { name: "flat", ok: false, sentence: "the queue stayed at 0", since_seconds: 3 };
    render(<StagesPanel stages={[]} checks={[check]} />, root);
    expect(text("warning")).toContain("the queue stayed at 0");
  });
});
