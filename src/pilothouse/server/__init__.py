# SPDX-License-Identifier: Apache-2.0
"""The HTTP API and the live stream that the page reads.

The loop hands one view per cycle to a ``Feed`` and never waits for a reader. Nothing here decides,
and nothing here opens the journal: what is served is what the loop published, so a viewer can
neither slow a cycle down nor see a half-written record.
"""

from pilothouse.server.feed import Feed
from pilothouse.server.views import Control, RunFacts, Stimulus, Turn, cycle_view

__all__ = ["Control", "Feed", "RunFacts", "Stimulus", "Turn", "cycle_view"]
