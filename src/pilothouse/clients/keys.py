# SPDX-License-Identifier: Apache-2.0
"""Names we put on other people's objects, and names of our own: one place for all who read them."""

from __future__ import annotations

from collections.abc import Mapping

TAINT_KEY = "pilothouse.dev/out-of-service"
AVOID_KEY = "pilothouse.dev/avoid"
POWER_KEY = "pilothouse.dev/power"
FREQUENCY_KEY = "pilothouse.dev/frequency"  # "650 until 1760000000"
FREQUENCY_STATUS_KEY = "pilothouse.dev/frequency-status"  # the node agent's answer
GATE_NAME = "pilothouse.dev/queue"  # the scheduling gate of held pods
LAST_LABEL = "pilothouse.dev/release"  # "last" on pods that are released after the others
SYSTEM = "pilothouse-system"
JANITOR = "pilothouse-janitor"  # the janitor's account and Lease
# Accounts without rights, whose annotations the admission policies judge by.
SWITCH = "pilothouse-switch"  # whether the actuator may write at all
FENCE = "pilothouse-fence"  # the leader that may
GATES = "pilothouse-gates"  # namespaces whose new pods are held, and how
ACTING_KEY = "pilothouse.dev/acting"  # on the switch: "enabled", or the actuator is refused
REASON_KEY = "pilothouse.dev/reason"  # on the switch: why not
EPOCH_KEY = "pilothouse.dev/epoch"  # on the fence: how often the Lease had changed hands
HOLDER_KEY = "pilothouse.dev/holder"  # on the fence: whose epoch that is
GATE_PREFIX = "gate.pilothouse.dev/"  # on the gates, before a namespace: "queue"


def account_path(name: str) -> str:
    """Where one of our own accounts is served."""
    return f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{name}"


def gates_in(notes: Mapping[str, str]) -> dict[str, str]:
    """Namespace to gate, from the annotations that carry them."""
    return {
        key.removeprefix(GATE_PREFIX): word
        for key, word in notes.items()
        if key.startswith(GATE_PREFIX)
    }


def permille(text: str) -> int:
    """The clock a node annotation asks for; the full one where it asks for none."""
    word = text.partition(" ")[0]
    return int(word) if word.isdigit() else 1000
