# SPDX-License-Identifier: Apache-2.0
"""Effects against forks: the sign, the arithmetic and what is done when there is no fork."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from pilothouse.domain import ActionKind, Receipt, Ref, Result, Status, Toll, Verb, Write
from pilothouse.score import Scorer, reward
from pilothouse.settings import ScoreSettings
from pilothouse.testing.builders import a_toll, an_action

NODE = Ref("sim", "node", "", "worker-1")


@dataclass
class Cluster:
    """Each second costs what the node's frequency says; nothing else happens."""

    frequency: int = 1000
    clock_seconds: int = 0
    spent: Toll = field(default_factory=lambda: a_toll(energy_joules=0.0))
    open_forks: list[Cluster] = field(default_factory=list)  # shared by all forks

    def advance(self, seconds: int) -> None:
        self.clock_seconds += seconds
        self.spent = replace(
            self.spent, energy_joules=self.spent.energy_joules + seconds * self.frequency
        )

    def execute(self, write: Write, agent: str) -> Receipt:
        status = Status.REFUSED
        if write.expect is None or write.expect == self.frequency:
            self.frequency, status = write.value, Status.DONE
        return Receipt(intent=write.intent, status=status, detail="", at_seconds=self.clock_seconds)

    def toll(self) -> Toll:
        return self.spent

    def fork(self) -> Cluster:
        self.open_forks.append(self)
        return replace(self)

    def close(self) -> None:
        self.open_forks.pop()


def slow_down(number: int, value: int, **changes: object):
    write = Write(
        verb=Verb.FREQUENCY,
        target=NODE,
        uid=1,
        value=value,
        original=1000,
        intent=f"d{number}.0.0",
        **changes,
    )
    return an_action(
        decision=f"d{number}", kind=ActionKind.DVFS, target=NODE, writes=(write,), inverse=()
    )


def act(scorer: Scorer, cluster: Cluster, *actions) -> None:
    base = scorer.before(cluster, actions)
    done = [(a, w, cluster.execute(w, a.agent)) for a in actions for w in a.writes]
    scorer.after(cluster, base, done)


def test_effect_is_the_difference_to_the_cluster_without_the_action():
    scorer, cluster = Scorer(ScoreSettings(settle_seconds=60)), Cluster()
    cluster.advance(30)
    act(scorer, cluster, slow_down(1, 600))
    cluster.advance(45)
    assert list(scorer.due(cluster)) == []
    cluster.advance(15)
    (result,) = scorer.due(cluster)
    assert result.effect.energy_joules == 60 * 600 - 60 * 1000
    assert result.reward.efficiency == pytest.approx(0.6 * 24)
    assert result.method == "fork"
    assert not result.overlapped


def test_later_actions_happen_in_the_fork_too():
    scorer, cluster = Scorer(ScoreSettings(settle_seconds=60)), Cluster()
    act(scorer, cluster, slow_down(1, 600))
    cluster.advance(30)
    act(scorer, cluster, slow_down(2, 500))
    cluster.advance(30)
    (first,) = scorer.due(cluster)
    assert first.effect.energy_joules == 30 * (600 - 1000), "the second half is equal in both"
    assert first.overlapped
    cluster.advance(30)
    (second,) = scorer.due(cluster)
    assert second.effect.energy_joules == 60 * (500 - 600), "without the second the first stays"


def test_refused_action_is_not_scored():
    scorer, cluster = Scorer(ScoreSettings(settle_seconds=60)), Cluster()
    act(scorer, cluster, slow_down(1, 600, expect=7))
    cluster.advance(60)
    assert list(scorer.due(cluster)) == []


def test_every_fork_is_given_back():
    scorer, cluster = Scorer(ScoreSettings(settle_seconds=60)), Cluster()
    act(scorer, cluster, slow_down(1, 600), slow_down(2, 500))
    act(scorer, cluster, slow_down(3, 600, expect=7))  # refused: its fork is of no use
    assert len(cluster.open_forks) == 2
    cluster.advance(60)
    assert len(list(scorer.due(cluster))) == 2
    assert cluster.open_forks == []


def test_without_forks_the_result_is_observed_and_has_no_effect():
    scorer = Scorer(ScoreSettings(settle_seconds=60, forks=False))
    cluster = Cluster()
    act(scorer, cluster, slow_down(1, 600))
    cluster.advance(60)
    (result,) = scorer.due(cluster)
    assert (result.method, result.effect, result.reward) == ("observed", None, None)
    assert "nothing is known of the time before" in result.sentence


def observed_after(before_seconds: int) -> Result:
    """A clock that is lowered after so long a look at the cluster, without forks."""
    scorer = Scorer(ScoreSettings(settle_seconds=60, forks=False))
    cluster = Cluster()
    list(scorer.due(cluster))
    for _ in range(before_seconds // 15):
        cluster.advance(15)
        list(scorer.due(cluster))
    act(scorer, cluster, slow_down(1, 600))
    cluster.advance(60)
    (result,) = scorer.due(cluster)
    return result


@pytest.mark.parametrize("before", [15, 60, 300])
def test_without_forks_the_reward_is_the_window_against_the_time_before(before: int):
    result = observed_after(before)
    assert (result.method, result.effect) == ("observed", None)
    assert result.toll.energy_joules == 60 * 600
    assert result.reward.efficiency == pytest.approx(0.6 * 60 * (1000 - 600) / 1000)


def test_observed_results_of_overlapping_windows_are_both_flagged():
    scorer, cluster = Scorer(ScoreSettings(settle_seconds=60, forks=False)), Cluster()
    act(scorer, cluster, slow_down(1, 600))
    cluster.advance(30)
    act(scorer, cluster, slow_down(2, 500))
    cluster.advance(60)
    assert [result.overlapped for result in scorer.due(cluster)] == [True, True]
    act(scorer, cluster, slow_down(3, 400))
    cluster.advance(60)
    assert [result.overlapped for result in scorer.due(cluster)] == [False]


def test_restore_opens_no_window_and_reaches_the_forks():
    scorer, cluster = Scorer(ScoreSettings(settle_seconds=60)), Cluster()
    act(scorer, cluster, slow_down(1, 600))
    cluster.advance(30)
    act(scorer, cluster, replace(slow_down(2, 1000, expect=600), restores="d1.0"))
    cluster.advance(30)
    (result,) = scorer.due(cluster)
    assert result.effect.energy_joules == 30 * (600 - 1000)


def test_savings_are_positive_rewards():
    weights = {"safety": 1.0, "efficiency": 0.6, "admission": 0.8}
    saved = a_toll(
        failed_pod_seconds=-120.0,
        violation_seconds=-60.0,
        waiting_pod_seconds=-60.0,
        energy_joules=-1000.0,
    )
    got = reward(saved, weights)
    assert (got.safety, got.efficiency, got.admission) == (3.0, 0.6, 0.8)
