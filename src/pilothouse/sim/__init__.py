# SPDX-License-Identifier: Apache-2.0
"""The one simulator: for the loop, for learning and for crash tests."""

from __future__ import annotations

from pilothouse.sim.blueprint import TICK_SECONDS
from pilothouse.sim.cluster import Cluster, SimCluster
from pilothouse.sim.command import ActiveStimulus, Command
from pilothouse.sim.remote import RemoteCluster
from pilothouse.sim.simulation import Simulation
from pilothouse.sim.trace import Trace

__all__ = [
    "TICK_SECONDS",
    "ActiveStimulus",
    "Cluster",
    "Command",
    "RemoteCluster",
    "SimCluster",
    "Simulation",
    "Trace",
]
