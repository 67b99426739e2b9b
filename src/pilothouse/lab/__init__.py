# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes on one machine, without Docker: real kubelets for real effects."""

from pilothouse.lab.lab import Lab, Wish
from pilothouse.lab.layout import Worker
from pilothouse.lab.reaper import Leftovers

__all__ = ["Lab", "Leftovers", "Wish", "Worker"]
