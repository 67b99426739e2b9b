// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import document from "../../api/openapi.json";
import { render } from "../tools/render.mjs";
import source from "./api.ts?raw";
import { cellOf, pairs } from "./cluster.ts";
import { PATIENCE_MS, SILENT_MS, badge, smoothed } from "./connection.ts";
import { aCycle, aNode, aProposal, aState, aStep, anAction } from "./fixture.ts";
import { flowStep } from "./flow.ts";
import { bytes, clock, millis, percent, plain, risk, score, signed, span, watts } from "./format.ts";
import { answerOf, outcomeOf, rowOf } from "./proposals.ts";
import { pressureColumns, rewardColumns } from "./series.ts";
import { EVENTS, REMEMBERED, carriedOn } from "./state.ts";
import { marks, neighbor } from "./timeline.ts";

describe("the types of the API", () => {
  it("equal the committed OpenAPI document", () => {
    expect(source).toBe(render(document));
  });
});

describe("numbers", () => {
  it("show times of the cluster clock", () => {
    expect(clock(5025)).toBe("01:23:45");
    expect(clock(-3)).toBe("00:00:00");
    expect([span(15), span(60), span(90), span(3600), span(7320)]).toEqual(["15 s", "1 min", "1 min 30 s", "1 h", "2 h 2 min"]);
  });

  it("show a dash where there is none", () => {
    expect([score(null), risk(null), plain(null), millis(null)]).toEqual(["–", "–", "–", "–"]);
  });

  it("keep two digits of scores and the sign of rewards", () => {
    expect([score(0.7), risk(784), percent(655)]).toEqual(["0.70", "0.78", "66 %"]);
    expect([signed(7.25), signed(-0.2), signed(0.001), signed(-240)]).toEqual(["+7.3", "−0.2", "0.0", "−240"]);
  });

  it("stay short", () => {
    expect([plain(1240), plain(0.12345), bytes(999), bytes(48_000), bytes(11_400_000)]).toEqual(["1,240", "0.123", "999 B", "48 kB", "11.4 MB"]);
    expect([watts(1962), watts(90_000), millis(1.25), millis(250.4)]).toEqual(["1,962 W", "90.0 kW", "1.3 ms", "250 ms"]);
  });
});

describe("state", () => {
  it("carries on with the next cycle", () => {
    const first = carriedOn(aState(), aCycle(1));
    const second = first && carriedOn(first, aCycle(2));
    expect(second?.timeline.map((mark) => mark.cycle)).toEqual([1, 2]);
    expect(second?.history.safety).toEqual([1, 2]);
    expect(second?.events.map((event) => event.cycle)).toEqual([2, 1]);
    expect(second?.timeline[1]?.agent).toBe("safety");
  });

  it("asks anew when cycles are missing or the run is another", () => {
    const state = aState(aCycle(3));
    expect(carriedOn(state, aCycle(5))).toBeNull();
    expect(carriedOn(state, aCycle(2))).toBeNull();
    expect(carriedOn(state, aCycle(4, { run: { ...aCycle(4).run, id: "r2" } }))).toBeNull();
  });

  it("takes the same cycle twice without counting it twice", () => {
    const state = carriedOn(aState(), aCycle(1));
    expect(state && carriedOn(state, aCycle(1))?.timeline.length).toBe(1);
  });

  it("forgets what is too old", () => {
    let state = aState();
    for (let number = 1; number <= REMEMBERED + 5; number++) state = carriedOn(state, aCycle(number)) ?? state;
    expect(state.timeline.length).toBe(REMEMBERED);
    expect(state.history.cycle[0]).toBe(6);
    expect(state.events.length).toBe(EVENTS);
  });
});

describe("the connection badge", () => {
  const signs = { open: true, ended: false, lastSign: 10_000, lastCycle: 10_000, spacing: 1_000 };

  it("is live while cycles come", () => {
    expect(badge(signs, 11_000)).toEqual({ state: "live", text: "live" });
  });

  it("says since when the loop is quiet", () => {
    expect(badge({ ...signs, lastSign: 20_000 }, 10_000 + PATIENCE_MS + 2_000).state).toBe("stale");
    expect(badge({ ...signs, lastSign: 20_000, spacing: 5_000 }, 20_000).state).toBe("live");
  });

  it("says that the connection is gone, even when the socket does not", () => {
    expect(badge({ ...signs, open: false }, 12_000).text).toBe("disconnected for 2 s");
    expect(badge(signs, 10_001 + SILENT_MS).state).toBe("disconnected");
  });

  it("tells an ended run from a broken one", () => {
    expect(badge({ ...signs, ended: true, open: false }, 90_000).state).toBe("ended");
    expect(badge({ open: false, ended: false, lastSign: 0, lastCycle: 0, spacing: 0 }, 5).state).toBe("connecting");
  });

  it("learns the usual spacing", () => {
    expect(smoothed(0, 300)).toBe(300);
    expect(smoothed(300, 400)).toBeCloseTo(330);
  });
});

describe("proposals", () => {
  it("show who beat a loser and why", () => {
    const row = rowOf(
      aProposal({
        index: 1,
        label: "AgentB:dvfs",
        ruling: "overridden",
        sentence: "safety preempts efficiency",
        beaten_by: { index: 0, agent: "safety", label: "AgentA:migrate", target: "worker-2", score: 0.78 },
      }),
      0,
    );
    expect([row.verdict, row.tone, row.lostTo]).toEqual(["overridden", "warn", "lost to"]);
    expect(row.beatenBy).toBe("AgentA:migrate worker-2 (0.78)");
    expect(row.why).toBe("safety preempts efficiency");
    expect(row.headline).toBe(false);
  });

  it("show a refused proposal with its reason and when there is room again", () => {
    const row = rowOf(aProposal({ ruling: "refused", rule: "dwell", sentence: "rests for 120 s", free_at_seconds: 859 }), null);
    expect(row.beatenBy).toBe("the guard's dwell");
    expect(row.why).toBe("rests for 120 s, free at 00:14:19");
  });

  it("show evidence with its threshold", () => {
    expect(rowOf(aProposal(), 0).evidence).toEqual([{ text: "risk 15 min 0.78", needs: "needs 0.7" }]);
  });

  it("survive numbers that are none", () => {
    const row = rowOf(aProposal({ score: null, evidence: [{ name: "risk", value: null, unit: "", needs: null }] }), null);
    expect([row.score, row.share, row.evidence[0]?.text]).toEqual(["–", 0, "risk –"]);
  });

  it("call a no-op what it is and a shadow choice what it is", () => {
    expect(rowOf(aProposal({ kind: "noop" }), null).verdict).toBe("no wish");
    expect(rowOf(aProposal({ mode: "shadow" }), 0).verdict).toBe("chosen, shadow");
  });
});

describe("actions", () => {
  const receipt = { intent: "d1.0.0", write: "taint worker-2: 0 → 1", status: "done", detail: "", reservation: "", at_seconds: 1 };

  it("say how the backend answered", () => {
    expect(answerOf(anAction()).text).toBe("no answer yet");
    expect(answerOf(anAction({ receipts: [receipt] })).text).toBe("2 writes done");
    const refused = { ...receipt, status: "refused", detail: "disruption budget" };
    expect(answerOf(anAction({ receipts: [refused, receipt] })).text).toBe("1 of 2 refused: disruption budget");
  });

  it("say in words that a resize is done and not in force", () => {
    const deferred = { ...receipt, reservation: "deferred: node has no room" };
    const answer = answerOf(anAction({ receipts: [receipt, deferred] }));
    expect(answer).toEqual({ text: "2 writes done, not in force: deferred: node has no room", tone: "warn" });
  });

  it("say when their effect is not known yet", () => {
    expect(outcomeOf(anAction())).toContain("not known yet");
    const result = { action: "d1.0", settled_seconds: 9, method: "fork", sentence: "saved 120 s", overlapped: true, effect: null, reward: null };
    expect(outcomeOf(anAction({ result }))).toBe("saved 120 s (another action touched the same objects)");
  });
});

describe("the cluster", () => {
  it("warns about a risky node", () => {
    const cell = cellOf(aNode({ risk_permille: 780, driver: "14 errors/min" }));
    expect([cell.level, cell.risky, cell.risk]).toEqual(["bad", true, "0.78"]);
    expect(cell.title).toContain("14 errors/min");
  });

  it("names special states and dims sleepers", () => {
    expect(cellOf(aNode({ power: "asleep", ready: false, pods: 0 }))).toMatchObject({ level: "off", state: "asleep" });
    expect(cellOf(aNode({ ready: false })).state).toBe("not ready, 11 pods");
    expect(cellOf(aNode({ tainted: true })).state).toBe("tainted, 11 pods");
    expect(cellOf(aNode({ frequency_permille: 650 })).state).toBe("clock 65 %, 11 pods");
    expect(cellOf(aNode({ pressure_permille: 1300 })).fill).toBe(1);
  });

  it("puts what it says beside what we conclude", () => {
    const { cluster, forecast } = aCycle(1);
    const [waiting, serving, , cpu, at] = pairs(cluster, forecast);
    expect(waiting?.raw).toBe("12 pending (9 no room, 3 no match)");
    expect(waiting?.interpreted).toBe("queue 9, oldest 45 s; 3 can never run");
    expect(serving?.interpreted).toBe("1 of 5 workloads outside their objective");
    expect(cpu?.interpreted).toBe("p95 demand in 15 min: 50 %");
    expect(at?.raw).toBe("14 errors/min, heartbeat 6100 ms late");
    expect(at?.level).toBe("bad");
  });

  it("names what is wrong, and how late autoscaling was", () => {
    const { cluster, forecast } = aCycle(1);
    const more = pairs(
      {
        ...cluster,
        troubles: [{ cause: "quota", target: "shop/cart", count: 4, sentence: "exceeded quota: small" }],
        scalers: [{ workload: "shop/cart", current: 1, desired: 3, maximum: 5 }],
        reactions: [{ workload: "shop/cart", decided_seconds: 15, node_seconds: null, running_seconds: 50 }],
      },
      forecast,
    ).slice(5);
    expect(more.map((pair) => pair.name)).toEqual(["trouble", "scaling", "scaled"]);
    expect(more[0]).toMatchObject({ raw: "quota: exceeded quota: small", interpreted: "shop/cart, 4 pods" });
    expect(more[1]?.raw).toBe("1 of 3 wanted replicas, at most 5");
    expect(more[2]?.raw).toBe("decided after 15 s, running after 50 s");
  });
});

describe("the flow", () => {
  it("tells fresh work from older and from none", () => {
    expect(flowStep(aStep()).age).toBe("this cycle");
    expect(flowStep(aStep({ age_seconds: 45 }))).toMatchObject({ freshness: "older", age: "45 s ago" });
    expect(flowStep(aStep({ done_seconds: null, age_seconds: null, duration_ms: null })).freshness).toBe("never");
  });
});

describe("the timeline", () => {
  const entries = [1, 2, 3].map((number) => ({
    cycle: number,
    at_seconds: 15 * number,
    decision: `d${number}`,
    kind: number === 2 ? ("act" as const) : ("nothing" as const),
    agent: number === 2 ? "safety" : "",
    title: number === 2 ? "AgentA:migrate worker-2" : "Do nothing",
    overridden: 1,
    refused: number === 2 ? 2 : 0,
  }));

  it("shows as many marks as fit", () => {
    const strip = marks(entries, 2);
    expect(strip.map((mark) => mark.height)).toEqual(["tall", "short"]);
    expect(strip[0]?.label).toBe("cycle 2, 00:00:30: AgentA:migrate worker-2, 1 lost, 2 refused");
  });

  it("walks with the arrow keys and stops at the ends", () => {
    const strip = marks(entries, 3);
    expect(neighbor(strip, "d2", -1)).toBe("d1");
    expect(neighbor(strip, "d3", 1)).toBeNull();
    expect(neighbor(strip, "gone", -1)).toBe("d3");
  });
});

describe("charts", () => {
  it("get one column per line, all as long as time", () => {
    const state = carriedOn(aState(), aCycle(1));
    const history = state?.history ?? aState().history;
    for (const column of [...rewardColumns(history), ...pressureColumns(history)]) expect(column.length).toBe(1);
  });
});
