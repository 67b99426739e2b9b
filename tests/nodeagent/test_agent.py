# SPDX-License-Identifier: Apache-2.0
"""The clock of a node: lowered on request, back by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilothouse.errors import ClusterUnreachable
from pilothouse.nodeagent import Clock, NodeAgent, Unavailable


class FakeNode:
    """An API server that knows one node."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.silent = False

    def get(self, path: str) -> dict[str, Any]:
        if self.silent:
            raise ClusterUnreachable("nobody there.")
        return {"metadata": {"name": "n", "uid": "u", "annotations": dict(self.notes)}}

    def patch(self, path: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.notes.update(body["metadata"]["annotations"])
        return {}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    folder = tmp_path / "sys/devices/system/cpu/cpufreq/policy0"
    folder.mkdir(parents=True)
    (folder / "scaling_max_freq").write_text("3000000\n")
    (folder / "cpuinfo_min_freq").write_text("800000\n")
    return folder


def frequency(policy: Path) -> int:
    return int((policy / "scaling_max_freq").read_text())


def test_clock_is_lowered_to_a_share_and_restored(policy: Path, tmp_path: Path) -> None:
    clock = Clock(tmp_path / "sys", tmp_path / "memory")
    clock.set(650)
    assert frequency(policy) == 1_950_000
    clock.restore()
    assert frequency(policy) == 3_000_000


def test_clock_never_goes_below_what_the_hardware_has(policy: Path, tmp_path: Path) -> None:
    Clock(tmp_path / "sys", tmp_path / "memory").set(10)
    assert frequency(policy) == 800_000


def test_restarted_agent_gives_back_what_was_there_before_it(policy: Path, tmp_path: Path) -> None:
    Clock(tmp_path / "sys", tmp_path / "memory").set(500)
    Clock(tmp_path / "sys", tmp_path / "memory").restore()
    assert frequency(policy) == 3_000_000


def test_kernel_without_cpufreq_is_said_to_be_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="offers no cpufreq"):
        Clock(tmp_path, tmp_path / "memory").set(500)


def test_agent_follows_the_annotation_until_it_ends(policy: Path, tmp_path: Path) -> None:
    node, now = FakeNode(), [100.0]
    clock = Clock(tmp_path / "sys", tmp_path / "memory")
    agent = NodeAgent(node, "n", clock, wall=lambda: now[0])  # type: ignore[arg-type]
    node.notes["pilothouse.dev/frequency"] = "650 until 200"
    agent.look()
    assert frequency(policy) == 1_950_000
    assert "1950000" in node.notes["pilothouse.dev/frequency-status"]
    now[0] = 201.0
    agent.look()
    assert frequency(policy) == 3_000_000
    assert node.notes["pilothouse.dev/frequency-status"] == "default"


def test_agent_that_hears_nobody_gives_the_clock_back(policy: Path, tmp_path: Path) -> None:
    node, ticks = FakeNode(), [0.0]
    clock = Clock(tmp_path / "sys", tmp_path / "memory")
    agent = NodeAgent(
        node,  # type: ignore[arg-type]
        "n",
        clock,
        wall=lambda: 100.0,
        monotonic=lambda: ticks[0],
    )
    node.notes["pilothouse.dev/frequency"] = "650 until 9000"
    agent.look()
    node.silent = True
    ticks[0] = 20.0
    agent.look()
    assert frequency(policy) == 1_950_000
    ticks[0] = 40.0
    agent.look()
    assert frequency(policy) == 3_000_000
