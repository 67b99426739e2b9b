# SPDX-License-Identifier: Apache-2.0
"""Inverses, from tickets alone: what makes every action end, whoever is dead."""

from pilothouse.janitor.janitor import Cause, Janitor, Sweep

__all__ = ["Cause", "Janitor", "Sweep"]
