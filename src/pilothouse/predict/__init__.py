# SPDX-License-Identifier: Apache-2.0
"""Snapshots over time become a forecast; inference only.

A forecaster sees snapshots in order and nothing else: its history is its own business, so the
history can be rebuilt by showing it the recorded snapshots again. It answers in integers, because
a forecast is recorded and decided upon as the very same value.
"""

from __future__ import annotations

from typing import Protocol

from pilothouse.domain import Forecast, Snapshot
from pilothouse.predict.baseline import EwmaTrend


class Forecaster(Protocol):
    """Says what the next hour looks like, and abstains where it cannot know."""

    name: str

    def predict(self, snapshot: Snapshot) -> Forecast: ...


__all__ = ["EwmaTrend", "Forecaster"]
