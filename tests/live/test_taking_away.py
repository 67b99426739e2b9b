# SPDX-License-Identifier: Apache-2.0
"""The lab leaves nothing behind.

Runs last, by its name: afterwards there is no lab, and to bring one up again for nobody takes as
long as ten other tests. Whoever runs the next suite brings one up where this one was killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pilothouse.lab import Lab, process
from tests.live.conftest import NAMESPACE, a_deployment, is_ready, lists_of_the_machine


def test_lab_goes_away_whole_after_everything_was_killed_and_again(
    lab: Lab,
    machine_before: dict[str, list[str]],
    pods: Callable[[str], list[dict[str, Any]]],
    eventually: Callable[..., Any],
) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    lab.apply(json.dumps(space))
    lab.apply(json.dumps(a_deployment("orphan", replicas=3, arguments=("--burn-millicores=50",))))
    eventually(lambda: len([p for p in pods("orphan") if is_ready(p)]) == 3)
    for started in lab.processes():
        process.kill_all([started.pid])
    lab.down()
    once = lists_of_the_machine(lab)
    lab.down()
    assert once == machine_before
    assert lists_of_the_machine(lab) == machine_before
    assert lab.status()["state"] == "down"
