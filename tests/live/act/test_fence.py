# SPDX-License-Identifier: Apache-2.0
"""What the API server judges by: it follows switch and fence, also with policies made anew."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pilothouse.act.fence import Fence
from pilothouse.cli import main
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.keys import FENCE
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.domain import ActionKind
from pilothouse.lab import Lab
from tests.live.act.conftest import MANIFESTS
from tests.live.act.helm import Helm, done, fence

POLICIES = MANIFESTS / "acting-policies.yaml"


@dataclass
class Leader:
    """Whose Lease is never renewed, so its epoch stays."""

    epoch: int
    identity: str
    is_held: bool = True
    sentence: str = ""

    def count_beyond(self, number: int) -> None: ...


def standing(lab: Lab) -> tuple[int, str]:
    """Epoch and name of the leader at whom the fence stands."""
    epoch, _, holder = fence(lab).partition(":")
    return int(epoch), holder


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


def verdict(actuator: Requests, epoch: int, holder: str) -> str:
    """What becomes of a node's annotation that some leader signs; empty: it passes."""
    try:
        actuator.try_patch(
            "/api/v1/nodes/worker-1",
            {"metadata": {"annotations": {"pilothouse.dev/frequency": "800 until 0"}}},
            author=f"pilothouse:{epoch}:{holder}:verdict",
            audit_id="verdict",
        )
    except Refusal as refusal:
        return str(refusal)
    return ""


def test_fence_is_found_out_when_nobody_judges_by_it(
    mended: Lab, actuator: Requests, eventually: Callable[..., Any]
) -> None:
    epoch, holder = standing(mended)
    leads = Leader(epoch, holder)
    eventually(lambda: Fence(actuator).objection(leads, {}) == "", seconds=60)
    for other in (Leader(epoch - 1, holder), Leader(epoch, "somebody")):
        assert "another leader came after us" in Fence(actuator).objection(other, {})
    mended.kubectl("delete", "validatingadmissionpolicybinding", "pilothouse-fence")
    let = f"let a write of epoch {epoch - 1} of {holder} pass"
    eventually(lambda: let in Fence(actuator).objection(leads, {}), seconds=60)


def test_fence_moves_to_greater_epochs_only_and_to_whoever_signs(
    installed: Lab, actuator: Requests
) -> None:
    epoch, holder = standing(installed)

    def moved(to: int, name: str, *, signed: str) -> str:
        notes = {"pilothouse.dev/epoch": str(to), "pilothouse.dev/holder": name}
        path = "/api/v1/namespaces/pilothouse-system/serviceaccounts/pilothouse-fence"
        body = {"metadata": {"annotations": notes}}
        author = f"pilothouse:{signed}:fence"
        try:
            actuator.try_patch(path, body, author=author, audit_id="moved")
        except Refusal as refusal:
            return str(refusal)
        return ""

    for to, name, signed in (
        (epoch - 1, holder, f"{epoch - 1}:{holder}"),
        (epoch, "somebody", f"{epoch}:somebody"),
        (epoch + 1, "somebody", f"{epoch + 1}:{holder}"),
        (epoch + 1, "somebody", f"{epoch}:somebody"),
        (epoch + 1, "some:body", f"{epoch + 1}:some:body"),
    ):
        assert "only moves forward" in moved(to, name, signed=signed), (to, name, signed)
    # The control: forwards, or not at all.
    assert moved(epoch + 1, "somebody", signed=f"{epoch + 1}:somebody") == ""
    assert moved(epoch, holder, signed=f"{epoch}:{holder}") == ""


def test_leader_of_a_lease_that_was_deleted_counts_on_and_acts(
    installed: Lab,
    actuator: Requests,
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
) -> None:
    before = standing(installed)
    installed.kubectl("delete", "lease", "pilothouse", "-n", "pilothouse-system")
    helm = Helm(actuator_kubeconfig, tmp_path / "act.db")
    try:
        helm.know(helm.node("worker-1"))
        _, receipts = helm.act(
            ActionKind.DVFS, helm.node("worker-1"), agent="efficiency", frequency_permille=800
        )
        assert done(receipts), receipts
        epoch, holder = standing(installed)
        assert epoch > before[0]
        assert verdict(actuator, epoch, holder) == ""
        for other in (before, (epoch, before[1])):
            assert "time is over" in verdict(actuator, *other)
        helm.turn_until(lambda: not helm.runner.loop.ledger.active)
    finally:
        helm.close()


def test_fence_that_was_cleared_by_hand_is_moved_again_by_its_leader(
    installed: Lab,
    actuator: Requests,
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
    eventually: Callable[..., Any],
) -> None:
    helm = Helm(actuator_kubeconfig, tmp_path / "act.db")
    leads = helm.acting.standing
    assert leads is not None
    try:
        eventually(lambda: leads.objection(restoring=True) == "", seconds=60)
        epoch, holder = standing(installed)
        assert (epoch, holder) == (leads.epoch, leads.holder)
        keys = ("pilothouse.dev/epoch-", "pilothouse.dev/holder-")
        installed.kubectl("annotate", "serviceaccount", FENCE, "-n", "pilothouse-system", *keys)
        # The control: as long as nobody asks, the leader is shut out.
        eventually(lambda: "time is over" in verdict(actuator, epoch, holder), seconds=60)
        eventually(
            lambda: (
                leads.objection(restoring=True) == "" and fence(installed) == f"{epoch}:{holder}"
            ),
            seconds=60,
        )
        eventually(lambda: verdict(actuator, epoch, holder) == "", seconds=60)
    finally:
        helm.close()


def test_switch_and_fence_are_followed_by_policies_that_were_deleted_and_made_again(
    mended: Lab, actuator: Requests, eventually: Callable[..., Any]
) -> None:
    (epoch, holder), cluster = standing(mended), ["--kubeconfig", str(mended.layout.kubeconfig)]
    assert verdict(actuator, epoch, holder) == ""
    mended.kubectl("delete", "--wait=true", "-f", str(POLICIES))
    # The control: nobody judges any more, so it is the new policies that do afterwards.
    eventually(lambda: verdict(actuator, epoch - 1, holder) == "", seconds=60)
    mended.apply(POLICIES.read_text())
    eventually(lambda: "time is over" in verdict(actuator, epoch - 1, holder), seconds=60)
    try:
        assert main(["halt", "--reason", "a test says so", *cluster]) == 0
        eventually(lambda: "a test says so" in verdict(actuator, epoch, holder), seconds=60)
    finally:
        assert main(["resume", *cluster]) == 0
    eventually(lambda: verdict(actuator, epoch, holder) == "", seconds=60)
    assert Fence(actuator).objection(Leader(epoch, holder), {}) == ""
