# SPDX-License-Identifier: Apache-2.0
"""What the API server judges by: it follows switch and fence, also with policies made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilothouse.act.fence import Fence
from pilothouse.cli import main
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.lab import Lab
from tests.live.act.conftest import MANIFESTS
from tests.live.act.helm import fence

POLICIES = MANIFESTS / "acting-policies.yaml"


@pytest.fixture
def actuator(actuator_kubeconfig: Path) -> Iterator[Requests]:
    requests = Requests(from_kubeconfig(actuator_kubeconfig))
    yield requests
    requests.close()


@pytest.fixture
def mended(installed: Lab) -> Iterator[Lab]:
    """Whatever a test does to the policies, the next one finds them whole."""
    yield installed
    installed.apply(POLICIES.read_text())


def verdict(actuator: Requests, epoch: int) -> str:
    """What becomes of a node's annotation, signed with some epoch; empty: it passes."""
    try:
        actuator.patch(
            "/api/v1/nodes/worker-1",
            {"metadata": {"annotations": {"pilothouse.dev/frequency": "800 until 0"}}},
            author=f"pilothouse:{epoch}:verdict",
            audit_id="verdict",
            dry_run=True,
        )
    except Refusal as refusal:
        return str(refusal)
    return ""


def test_fence_is_found_out_when_nobody_judges_by_it(
    mended: Lab, actuator: Requests, eventually: Callable[..., Any]
) -> None:
    epoch = int(fence(mended))
    eventually(lambda: Fence(actuator).objection(epoch) == "", seconds=20)
    assert "another leader came after us" in Fence(actuator).objection(epoch - 1)
    mended.kubectl("delete", "validatingadmissionpolicybinding", "pilothouse-fence")
    let = f"let a write of epoch {epoch - 1} pass"
    eventually(lambda: let in Fence(actuator).objection(epoch), seconds=20)


def test_switch_and_fence_are_followed_by_policies_that_were_deleted_and_made_again(
    mended: Lab, actuator: Requests, eventually: Callable[..., Any]
) -> None:
    epoch, cluster = int(fence(mended)), ["--kubeconfig", str(mended.layout.kubeconfig)]
    assert verdict(actuator, epoch) == ""
    mended.kubectl("delete", "--wait=true", "-f", str(POLICIES))
    # The control: nobody judges any more, so it is the new policies that do afterwards.
    eventually(lambda: verdict(actuator, epoch - 1) == "", seconds=20)
    mended.apply(POLICIES.read_text())
    eventually(lambda: "time is over" in verdict(actuator, epoch - 1), seconds=20)
    try:
        assert main(["halt", "--reason", "a test says so", *cluster]) == 0
        eventually(lambda: "a test says so" in verdict(actuator, epoch), seconds=5)
    finally:
        assert main(["resume", *cluster]) == 0
    eventually(lambda: verdict(actuator, epoch) == "", seconds=5)
    assert Fence(actuator).objection(epoch) == ""
