# SPDX-License-Identifier: Apache-2.0
"""The time from load to Running, step by step."""

from __future__ import annotations

from pilothouse.domain.observed import NEVER
from pilothouse.observe.reactions import GIVE_UP_SECONDS, Reactions, Sight


def a_sight(load: int, desired: int, running: int, current: int = 0) -> Sight:
    return Sight(
        uid=1,
        namespace="shop",
        name="cart",
        load_permille=load,
        target_permille=500,
        current=current or running,
        desired=desired,
        running=running,
    )


def test_every_step_is_timed_from_the_load() -> None:
    reactions = Reactions()
    assert not reactions.look(100, [a_sight(200, 1, 1)], [0])
    assert not reactions.look(110, [a_sight(900, 1, 1)], [0])
    assert not reactions.look(125, [a_sight(900, 3, 1)], [0])
    assert not reactions.look(150, [a_sight(900, 3, 2)], [0, 140])
    (done,) = reactions.look(160, [a_sight(600, 3, 3)], [0, 140])
    assert (done.began_seconds, done.decided_seconds) == (110, 15)
    assert (done.node_seconds, done.running_seconds) == (40, 50)
    assert (done.replicas_before, done.replicas_after) == (1, 3)


def test_node_that_was_there_before_is_not_one_that_came() -> None:
    reactions = Reactions()
    for now, desired, running in ((10, 1, 1), (20, 2, 1)):
        reactions.look(now, [a_sight(900, desired, running)], [5])
    (done,) = reactions.look(30, [a_sight(900, 2, 2)], [5])
    assert done.node_seconds == NEVER


def test_load_that_goes_away_before_anybody_cared_is_no_reaction() -> None:
    reactions = Reactions()
    reactions.look(10, [a_sight(900, 1, 1)], [])
    reactions.look(20, [a_sight(100, 1, 1)], [])
    assert not reactions.look(30, [a_sight(100, 2, 2)], [])


def test_load_that_is_never_answered_is_given_up_and_says_so() -> None:
    reactions = Reactions()
    reactions.look(0, [a_sight(900, 1, 1)], [])
    (given_up,) = reactions.look(GIVE_UP_SECONDS + 1, [a_sight(900, 1, 1)], [])
    assert given_up.running_seconds == NEVER
    assert given_up.decided_seconds == NEVER


def test_autoscaler_that_saw_the_load_before_us_decided_at_once() -> None:
    reactions = Reactions()
    assert not reactions.look(10, [a_sight(900, 3, 1)], [])
    (done,) = reactions.look(20, [a_sight(900, 3, 3)], [])
    assert (done.decided_seconds, done.running_seconds) == (0, 10)
    assert done.replicas_before == 1


def test_workload_that_starts_up_is_no_reaction() -> None:
    reactions = Reactions()
    assert not reactions.look(10, [a_sight(900, 1, 0)], [])
    assert not reactions.look(20, [a_sight(900, 1, 1)], [])
