// SPDX-License-Identifier: Apache-2.0
import type { TimelineEntry } from "../api.ts";
import * as store from "../store.ts";
import { marks, neighbor } from "../timeline.ts";

/** Marks that fit the width of the page without becoming too thin to hit. */
const ROOM = 180;

export function Timeline({ timeline, selected }: { timeline: ReadonlyArray<TimelineEntry>; selected: string }) {
  const strip = marks(timeline, ROOM);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : null;
    const next = step === null ? null : neighbor(strip, selected, step);
    if (next === null) return;
    event.preventDefault();
    void store.inspect(next);
  };
  return (
    <div class="timeline" role="group" aria-label="Past cycles, oldest first" data-testid="timeline" onKeyDown={onKeyDown}>
      {strip.map((mark) => (
        <button
          key={mark.decision}
          type="button"
          class={`mark ${mark.height} agent-${mark.agent || "none"} ${mark.refused ? "refused" : ""}`}
          title={mark.label}
          aria-label={mark.label}
          aria-current={mark.decision === selected}
          tabIndex={mark.decision === selected ? 0 : -1}
          data-cycle={mark.cycle}
          data-decision={mark.decision}
          data-lost={mark.lost}
          onClick={() => void store.inspect(mark.decision)}
        />
      ))}
    </div>
  );
}
