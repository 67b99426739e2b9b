# SPDX-License-Identifier: Apache-2.0
"""What an action was worth, read back from the cluster after its settle window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pilothouse.domain import ActionKind, Result
from tests.live.act.helm import Helm, done

Make = Callable[..., Any]
LIMITS = {"cpu": "200m", "memory": "64Mi"}


def results_of(helm: Helm, *actions: str) -> list[Result]:
    """The results of these actions; turns until all windows have ended."""

    def found() -> list[Result]:
        known = {r.action: r for report in helm.turns for r in report.turn.results}
        return [known[a] for a in actions] if all(a in known for a in actions) else []

    results: list[Result] = helm.turn_until(found, seconds=90)
    return results


def test_result_is_read_back_after_the_settle_window_and_has_a_reward(
    helm: Helm, harbor: Make
) -> None:
    (pod,) = harbor("measured", arguments=("--burn-millicores=100",), limits=LIMITS)
    target = helm.pod(pod["metadata"]["name"])
    helm.know(target)
    helm.turn()
    began = helm.cluster.clock_seconds
    helm.turn_until(lambda: helm.cluster.clock_seconds > began)  # so there is a time before
    action, receipts = helm.act(ActionKind.THROTTLE, target, factor=0.9)
    assert done(receipts), receipts
    (result,) = results_of(helm, action.id)
    settle = helm.runner.settings.score.settle_seconds
    assert result.settled_seconds >= receipts[-1].at_seconds + settle
    assert (result.method, result.effect) == ("observed", None)
    assert result.reward is not None
    assert result.toll.energy_joules > 0
    assert not result.overlapped
    assert "observed" in result.sentence


def test_actions_on_the_same_pod_within_one_window_are_flagged(helm: Helm, harbor: Make) -> None:
    (pod,) = harbor("crowded", arguments=("--burn-millicores=100",), limits=LIMITS)
    target = helm.pod(pod["metadata"]["name"])
    helm.know(target)
    dwell = helm.runner.settings.guard.dwell_seconds
    first, receipts = helm.act(ActionKind.THROTTLE, target, factor=0.9)
    assert done(receipts), receipts
    rested = receipts[-1].at_seconds + dwell + 1
    helm.turn_until(lambda: helm.cluster.clock_seconds >= rested)
    second, more = helm.act(
        ActionKind.RESOURCE_CAP, helm.workload("crowded"), agent="admission", factor=0.9
    )
    assert done(more), more
    assert [r.overlapped for r in results_of(helm, first.id, second.id)] == [True, True]
