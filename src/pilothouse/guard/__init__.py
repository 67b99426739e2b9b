# SPDX-License-Identifier: Apache-2.0
"""What may never happen, whoever asks: small deterministic code with no learning in it.

The guard *screens* every proposal on its own before the referee sees any, so that one that cannot
be done blocks nobody; and it *checks* the chosen ones one after the other, so that together they
stay inside the budgets. It judges plans, never wishes, and keeps nothing between two calls.
"""

from pilothouse.guard.case import Sent, Standing, refuse
from pilothouse.guard.guard import Check, Guard
from pilothouse.guard.ledger import STEWARD, Active, Charge, Ledger
from pilothouse.guard.validity import JANITOR

__all__ = [
    "JANITOR",
    "STEWARD",
    "Active",
    "Charge",
    "Check",
    "Guard",
    "Ledger",
    "Sent",
    "Standing",
    "refuse",
]
