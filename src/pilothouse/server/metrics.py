# SPDX-License-Identifier: Apache-2.0
"""What Prometheus may scrape about the loop, in a registry of its own.

The process-wide default registry is left alone, so two feeds in one process (tests, a lab with
several clusters) do not fight over names.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from pilothouse.server.shapes import CycleView

# From a tenth of the goal at 100 nodes to well past the ceiling at 5,000.
CYCLE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 3.0, 10.0)


class Metrics:
    """Counters and gauges, brought up to date once per published cycle."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        ProcessCollector(namespace="pilothouse", registry=own)  # memory, processor, open files
        self._cycles = Counter("pilothouse_cycles_total", "Turns of the loop.", registry=own)
        self._decisions = Counter(
            "pilothouse_decisions_total", "Decisions by kind.", ["kind"], registry=own
        )
        self._verdicts = Counter(
            "pilothouse_verdicts_total", "Verdicts by ruling.", ["ruling"], registry=own
        )
        self._seconds = Histogram(
            "pilothouse_cycle_seconds",
            "Wall time of one turn.",
            registry=own,
            buckets=CYCLE_BUCKETS,
        )
        self._gauges = {
            name: Gauge(f"pilothouse_{name}", text, registry=own)
            for name, text in (
                ("cycle_number", "Number of the latest cycle."),
                ("journal_bytes", "Size of the journal."),
                ("cluster_queue_pods", "Pods that wait and could run."),
                ("cluster_unschedulable_pods", "Pods that no node will ever match."),
                ("cluster_violating_workloads", "Workloads outside their objective."),
                ("cluster_failed_pods", "Pods that should serve and do not."),
                ("cluster_nodes", "Nodes."),
                ("cluster_ready_nodes", "Nodes that report Ready."),
                ("cluster_modelled_power_watts", "Power draw of the cluster, modelled."),
                ("halted", "1 while the kill switch is on."),
                ("checks_warning", "Self-checks that warn."),
            )
        }
        self._ages = Gauge(
            "pilothouse_source_age_seconds",
            "Age of what was read, by source.",
            ["source"],
            registry=own,
        )
        self._complete = Gauge(
            "pilothouse_source_complete_ratio",
            "How much of a source arrived, 0 to 1, by source.",
            ["source"],
            registry=own,
        )
        self._drift = Gauge(
            "pilothouse_forecast_drift_index",
            "Stability index of features that moved away from training, by scope and feature.",
            ["scope", "feature"],
            registry=own,
        )
        self._abstains = Gauge(
            "pilothouse_forecast_abstentions",
            "Parts of the latest forecast that were left to another forecaster or to nobody.",
            registry=own,
        )
        self._reward = Gauge(
            "pilothouse_reward", "Reward of settled actions by agent.", ["agent"], registry=own
        )

    def record(self, view: CycleView) -> None:
        """Count one cycle."""
        rulings = view.decision.rulings
        self._cycles.inc()
        self._decisions.labels(view.decision.kind).inc()
        self._verdicts.labels("chosen").inc(rulings.chosen)
        self._verdicts.labels("overridden").inc(rulings.overridden)
        self._verdicts.labels("refused").inc(rulings.refused)
        self._verdicts.labels("expired").inc(rulings.expired)
        self._seconds.observe(view.cycle_ms / 1000)
        for name, value in _levels(view).items():
            self._gauges[name].set(value)
        for source in view.cluster.sources:
            self._ages.labels(source.name).set(source.age_seconds)
            self._complete.labels(source.name).set(source.completeness_permille / 1000)
        self._drift.clear()  # a feature that came back is no longer told
        for shift in view.forecast.drift:
            self._drift.labels(shift.scope, shift.feature).set(shift.index)
        self._abstains.set(len(view.forecast.abstentions))
        total = view.rewards.total
        self._reward.labels("safety").set(total.safety)
        self._reward.labels("efficiency").set(total.efficiency)
        self._reward.labels("admission").set(total.admission)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


def _levels(view: CycleView) -> dict[str, float]:
    seen = view.cluster.interpreted
    return {
        "cycle_number": view.cycle,
        "journal_bytes": view.journal_bytes,
        "cluster_queue_pods": seen.queue_length,
        "cluster_unschedulable_pods": seen.unschedulable,
        "cluster_violating_workloads": seen.violations,
        "cluster_failed_pods": seen.failed_pods,
        "cluster_nodes": view.cluster.raw.nodes,
        "cluster_ready_nodes": view.cluster.raw.nodes_ready,
        "cluster_modelled_power_watts": seen.power_watts,
        "halted": int(view.run.halted),
        "checks_warning": sum(not check.ok for check in view.checks),
    }
