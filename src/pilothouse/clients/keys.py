# SPDX-License-Identifier: Apache-2.0
"""Names we put on other people's objects, and names of our own: one place for all who read them."""

from __future__ import annotations

TAINT_KEY = "pilothouse.dev/out-of-service"
AVOID_KEY = "pilothouse.dev/avoid"
POWER_KEY = "pilothouse.dev/power"
FREQUENCY_KEY = "pilothouse.dev/frequency"  # "650 until 1760000000"
FREQUENCY_STATUS_KEY = "pilothouse.dev/frequency-status"  # the node agent's answer
GATE_NAME = "pilothouse.dev/queue"  # the scheduling gate of held pods
LAST_LABEL = "pilothouse.dev/release"  # "last" on pods that are released after the others
SYSTEM = "pilothouse-system"
GATES = "pilothouse-gates"  # ConfigMap: namespace to gate, read by the admission policies
SWITCH = "pilothouse-switch"  # ConfigMap: whether the actuator may write at all
JANITOR = "pilothouse-janitor"  # the janitor's account and Lease


def permille(text: str) -> int:
    """The clock a node annotation asks for; the full one where it asks for none."""
    word = text.partition(" ")[0]
    return int(word) if word.isdigit() else 1000
