# SPDX-License-Identifier: Apache-2.0
"""The series of the scorer's page: pods per node, active nodes, latency of the chosen nodes."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from pilothouse.scorer.board import Board
from pilothouse.scorer.placements import Placements, chosen_latency

POINTS = 600
MOST_NODES = 12  # a page cannot show a thousand lines


class History:
    """One point per sample; old ones fall off."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int, dict[str, int]]] = deque(maxlen=POINTS)
        self._lock = threading.Lock()

    def sample(self, board: Board) -> None:
        machines = board.machines()
        if not machines:
            return
        active = sum(machine.counted_pods > 0 for machine in machines)
        pods = {machine.name: machine.counted_pods for machine in machines[:MOST_NODES]}
        with self._lock:
            self._points.append((board.clock(), active, pods))

    def graphs(self, board: Board, placements: Placements) -> dict[str, Any]:
        """Series as the page draws them; times are seconds before now."""
        now = board.clock()
        with self._lock:
            points = list(self._points)
        names = sorted({name for _, _, pods in points for name in pods})
        latencies = [
            {
                "pod": f"{item.get('namespace')}/{item.get('pod')}",
                "ms": ms,
                "node": item.get("node"),
            }
            for item in list(placements.latest)[-POINTS:]
            if (ms := chosen_latency(item)) is not None
        ]
        return {
            "seconds_ago": [round(now - at, 1) for at, _, _ in points],
            "active_nodes": [active for _, active, _ in points],
            "pods_per_node": {n: [pods.get(n, 0) for _, _, pods in points] for n in names},
            "chosen_latency_ms": latencies,
            "policy": board.policy.version if board.policy else None,
            "placements": len(placements.latest),
            "records_dropped": placements.dropped,
        }
