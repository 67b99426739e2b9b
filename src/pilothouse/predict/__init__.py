# SPDX-License-Identifier: Apache-2.0
"""Snapshots over time become a forecast; inference only.

A forecaster sees snapshots in order and nothing else: its history is its own business, so the
history can be rebuilt by showing it the recorded snapshots again. It answers in integers, because
a forecast is recorded and decided upon as the very same value.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from pilothouse.domain import Forecast, Snapshot
from pilothouse.predict.baseline import EwmaTrend
from pilothouse.settings import ForecastSettings, SafetySettings, Settings

TRANSPARENT = EwmaTrend.name.partition("/")[0]


class Forecaster(Protocol):
    """Says what the next hour looks like, and abstains where it cannot know."""

    name: str

    def predict(self, snapshot: Snapshot) -> Forecast: ...


def forecaster_of(settings: ForecastSettings) -> Forecaster:
    """The forecaster the settings name: the transparent one, the shipped one, or a file."""
    under = _of_risk(settings)
    if settings.demand == TRANSPARENT:
        return under
    from pilothouse.predict.demand import WithDemand, load_demand

    return WithDemand(under, load_demand(_trained(settings.demand)))


def _of_risk(settings: ForecastSettings) -> Forecaster:
    if settings.forecaster == TRANSPARENT:
        return EwmaTrend(settings)
    from pilothouse.predict.learned import Learned, load_artifact

    name = settings.forecaster
    return Learned(load_artifact(None if name == "learned" else _trained(name)), settings)


def with_thresholds(settings: Settings) -> Settings:
    """Safety's thresholds as the forecaster ships them, where a person has set none.

    The transparent forecaster is not calibrated and keeps the defaults. A calibrated one derives
    its thresholds from what a miss and a needless action cost.
    """
    forecaster = forecaster_of(settings.forecast)
    shipped = getattr(forecaster, "thresholds", {})
    defaults = SafetySettings()
    unset = {
        k: v for k, v in shipped.items() if getattr(settings.safety, k) == getattr(defaults, k)
    }
    return replace(settings, safety=replace(settings.safety, **unset)) if unset else settings


def _trained(name: str) -> Path:
    """A path as it is; a bare name is looked up among the trained forecasters of the home."""
    from pilothouse.home import folder

    given = Path(name)
    if given.suffix == ".json" or given.exists():
        return given
    return folder("models") / name / "forecaster.json"


__all__ = ["EwmaTrend", "Forecaster", "forecaster_of", "with_thresholds"]
