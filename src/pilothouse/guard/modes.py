# SPDX-License-Identifier: Apache-2.0
"""How far an agent may go with one plan.

Modes are kept by agent and by ``agent/namespace``; the more specific one counts. A plan that
touches several namespaces gets the strictest of their modes, and one that takes a node out of
service is also bound by the agent's own mode.
"""

from __future__ import annotations

from collections.abc import Mapping

from pilothouse.domain import Mode, Plan
from pilothouse.settings import ModeSettings

STRICTNESS = {Mode.OFF: 0, Mode.SHADOW: 1, Mode.ADVISE: 2, Mode.ENFORCE: 3}


def mode_of(agent: str, plan: Plan, modes: Mapping[str, Mode], settings: ModeSettings) -> Mode:
    """The strictest mode that applies."""
    own = _mode(agent, modes, settings) or settings.default
    spaces = {r.namespace for r in plan.touches if r.namespace}
    spaces |= {r.name for r in plan.touches if r.kind == "namespace"}
    found = [_mode(f"{agent}/{space}", modes, settings) or own for space in sorted(spaces)]
    if plan.nodes or not found:
        found.append(own)
    return min(found, key=lambda mode: STRICTNESS[mode])


def _mode(key: str, modes: Mapping[str, Mode], settings: ModeSettings) -> Mode | None:
    return modes.get(key) or settings.agents.get(key)
