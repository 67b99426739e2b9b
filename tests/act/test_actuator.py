# SPDX-License-Identifier: Apache-2.0
"""Sending writes: asked before each one, and what takes an action back always goes out."""

from __future__ import annotations

from pilothouse.act import RecordingActuator, perform
from pilothouse.domain import Action, ActionKind, Ref, Verb, Write

NODE = Ref("sim", "node", "", "n1")


def an_action(name: str, restores: str = "") -> Action:
    write = Write(
        verb=Verb.FREQUENCY, target=NODE, uid=1, value=800, original=1000, intent=f"{name}.0"
    )
    return Action(
        id=name,
        proposal=0,
        agent="efficiency",
        kind=ActionKind.RESTORE if restores else ActionKind.DVFS,
        target=NODE,
        writes=(write,),
        inverse=(),
        expires_seconds=None,
        restores=restores,
    )


def test_refused_write_is_skipped_with_the_reason_and_a_restore_is_sent():
    actuator = RecordingActuator(clock=lambda: 7)
    actions = [an_action("d.0"), an_action("d.1", restores="c.0")]
    done = list(perform(actions, actuator, may_write=lambda *_: "because", clock=lambda: 7))
    assert done[0][2].detail == "because"
    assert [write.intent for write in actuator.writes] == ["d.1.0"]
