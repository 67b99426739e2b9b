# SPDX-License-Identifier: Apache-2.0
"""The small program on a node that lowers its clock when the node's annotation asks for it."""

from pilothouse.nodeagent.clock import Clock, Unavailable
from pilothouse.nodeagent.watch import NodeAgent

__all__ = ["Clock", "NodeAgent", "Unavailable"]
