# SPDX-License-Identifier: Apache-2.0
"""What Prometheus may scrape about the scorer, in a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pilothouse.scorer.board import Board

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0)


class Metrics:
    """Counters of requests, gauges of what the board holds."""

    def __init__(self, board: Board) -> None:
        self._board = board
        own = self.registry = CollectorRegistry()
        self.requests = Counter(
            "pilothouse_scorer_requests_total",
            "Requests by route and status.",
            ["route", "status"],
            registry=own,
        )
        self.seconds = Histogram(
            "pilothouse_scorer_request_seconds",
            "Time of an answer, by route.",
            ["route"],
            registry=own,
            buckets=BUCKETS,
        )
        self.reloads = Counter(
            "pilothouse_scorer_reloads_total",
            "Policy reloads, by result.",
            ["result"],
            registry=own,
        )
        self._latency = Gauge(
            "pilothouse_scorer_node_latency_milliseconds",
            "Believed latency from a node to the default user.",
            ["node"],
            registry=own,
        )
        self._age = Gauge(
            "pilothouse_scorer_view_age_seconds", "Age of the view of the cluster.", registry=own
        )

    def text(self) -> bytes:
        self._latency.clear()
        for node, measured in self._board.latencies().items():
            self._latency.labels(node).set(measured.milliseconds)
        self._age.set(self._board.view.age_seconds())
        return generate_latest(self.registry)
