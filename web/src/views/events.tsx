// SPDX-License-Identifier: Apache-2.0
import type { EventView } from "../api.ts";
import { clock } from "../format.ts";
import * as store from "../store.ts";

/** Lines drawn; the rest is in the journal. */
const DRAWN = 120;

export function EventsPanel({ events }: { events: ReadonlyArray<EventView> }) {
  return (
    <section class="panel events grows" aria-labelledby="events-heading">
      <h2 id="events-heading">Events</h2>
      <ol class="scroll" tabIndex={0} data-testid="events" aria-label="Events, newest first">
        {events.slice(0, DRAWN).map((event) => (
          <li key={event.id} class={event.severity} data-kind={event.kind}>
            <time>{clock(event.at_seconds)}</time>
            <span class="kind">{event.kind}</span>
            {event.decision === "" ? (
              <span class="text">{event.text}</span>
            ) : (
              <button type="button" class="text" title={`Show decision ${event.decision}`} onClick={() => void store.inspect(event.decision)}>
                {event.text}
              </button>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}
