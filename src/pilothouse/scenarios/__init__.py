# SPDX-License-Identifier: Apache-2.0
"""Scenarios as pure data: what a cluster looks like and what happens to it.

A scenario is one file. Every number that may vary is a range ``[low, high]`` of integers from
which the seed draws. Stimuli carry two sets of ranges that do not overlap: *tuning* is for
whoever adjusts thresholds, *held_out* for whoever claims a benefit. A scenario never names an
agent or a cycle: it knows the world, not who looks after it.
"""

from __future__ import annotations

from pilothouse.scenarios.library import FOR_FORECASTS, load, names
from pilothouse.scenarios.scenario import (
    Batch,
    Exerciser,
    Faults,
    LatencyChange,
    Load,
    Range,
    Scenario,
    Scripted,
    Services,
    Stimulus,
    StimulusKind,
    World,
)

__all__ = [
    "FOR_FORECASTS",
    "Batch",
    "Exerciser",
    "Faults",
    "LatencyChange",
    "Load",
    "Range",
    "Scenario",
    "Scripted",
    "Services",
    "Stimulus",
    "StimulusKind",
    "World",
    "load",
    "names",
]
