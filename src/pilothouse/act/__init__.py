# SPDX-License-Identifier: Apache-2.0
"""Decision → Outcome: plans, and the actuators that carry them out."""

from pilothouse.act.actuator import Actuator, RecordingActuator, perform, resolve

__all__ = ["Actuator", "RecordingActuator", "perform", "resolve"]
