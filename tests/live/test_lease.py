# SPDX-License-Identifier: Apache-2.0
"""One Pilothouse per cluster: the others say who it is, and wait."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pilothouse.cli.live import open_cluster
from pilothouse.lab import Lab
from tests.live.conftest import NAMESPACE


def test_second_is_told_who_holds_the_lease_and_goes_on_when_it_is_given_back(
    lab: Lab, observer_kubeconfig: Path, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    _, first = open_cluster(observer_kubeconfig, namespaces=NAMESPACE, prometheus=None)
    try:
        eventually(lambda: first.leadership.is_held)
        holder = first.leadership.identity
        lease = lab.kubectl("get", "lease", "pilothouse", "-n", "pilothouse-system", "-o", "json")
        assert json.loads(lease)["spec"]["holderIdentity"] == holder
        words = tmp_path / "words"
        with words.open("w") as out, an_up(observer_kubeconfig, tmp_path, out) as second:
            eventually(lambda: f"Standing by: {holder}" in words.read_text())
            assert "decision" not in words.read_text()
            first.close()
            eventually(lambda: '"decision"' in words.read_text())
            assert "Going on: The lease" in words.read_text()
            assert second.wait(60) == 0
    finally:
        first.close()


def an_up(kubeconfig: Path, folder: Path, out: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pilothouse.cli", "up", "--kubeconfig", str(kubeconfig)]
    command += ["--no-serve", "--json", "--interval", "0.2", "--cycles", "3"]
    command += ["--journal", str(folder / "second.db")]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True)


def test_lease_of_a_holder_that_was_killed_is_taken_over(
    observer_kubeconfig: Path, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    words = tmp_path / "words"
    with words.open("w") as out, an_up(observer_kubeconfig, tmp_path, out) as first:
        eventually(lambda: '"decision"' in words.read_text())
        first.send_signal(signal.SIGKILL)
    _, second = open_cluster(observer_kubeconfig, namespaces=NAMESPACE, prometheus=None)
    try:
        eventually(lambda: second.leadership.is_held)
        assert second.leadership.epoch >= 1
    finally:
        second.close()
