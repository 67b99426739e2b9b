# SPDX-License-Identifier: Apache-2.0
"""The guard-rails, one family per file. Each looks at one case and refuses it or says nothing."""

from __future__ import annotations

from collections.abc import Callable

from pilothouse.domain import Verdict
from pilothouse.guard.case import Case
from pilothouse.guard.rails import budgets, capacity, floors, freshness, protection, rest

Rail = Callable[[Case], Verdict | None]

RAILS: tuple[Rail, ...] = (
    protection.target_is_open,  # first: what is protected is not even counted
    protection.drain_spares_protected,
    protection.reject_needs_a_person,
    freshness.data_is_fresh,
    freshness.cluster_is_mostly_ready,
    rest.field_has_rested,
    rest.field_is_not_fought_over,
    floors.cpu_stays_above_floor,
    floors.memory_stays_above_floor,
    floors.clock_stays_above_floor,
    floors.replicas_stay_within_factor,
    capacity.sleep_needs_an_empty_node,
    capacity.zone_keeps_a_node,
    capacity.disruption_budget_holds,
    capacity.pods_are_old_enough,
    capacity.moved_pods_fit_elsewhere,
    capacity.replica_fits,
    budgets.agent,
    budgets.nodes,
    budgets.workloads,
    budgets.namespaces,
    budgets.nodes_out_of_service,
    budgets.drains,
    budgets.disturbed_pods,
    budgets.gates,
)

# A drain was counted and has rested when it began; what carries it on must still be safe.
CARRYING_RAILS: tuple[Rail, ...] = (
    protection.target_is_open,
    freshness.data_is_fresh,
    freshness.cluster_is_mostly_ready,
    capacity.sleep_needs_an_empty_node,
    capacity.moved_pods_fit_elsewhere,
)

__all__ = ["CARRYING_RAILS", "RAILS", "Rail"]
