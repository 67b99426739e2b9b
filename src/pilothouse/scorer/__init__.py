# SPDX-License-Identifier: Apache-2.0
"""The suggestions server: scores nodes for a pod, explains each score, and feeds the scheduler.

It watches the cluster and the latency probes, holds the policy, and answers three kinds of callers:
people and programs (``/v1/suggestions``), our scheduler plugin (``/v1/table``, which carries all it
needs for scoring in its own process), and any kube-scheduler as an extender. NumPy only.
"""

from pilothouse.scorer.app import create_app
from pilothouse.scorer.board import Board

__all__ = ["Board", "create_app"]
