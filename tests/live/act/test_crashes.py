# SPDX-License-Identifier: Apache-2.0
"""A loop that is killed in the middle of acting, again and again, and what the server's log says.

The short form kills a few times; ``PILOTHOUSE_KILLS=50`` is the whole campaign.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep, time
from typing import Any

import pytest

from pilothouse.journal.resume import read_resume
from pilothouse.lab import Lab
from tests.live.act.helm import SPACE
from tests.live.act.test_switch import LoopProcess, residue

KILLS = int(os.environ.get("PILOTHOUSE_KILLS", "3"))


def audit_files(lab: Lab) -> list[Path]:
    return sorted(lab.layout.audit_log.parent.glob(f"{lab.layout.audit_log.stem}*"))


def run_checker(
    lab: Lab, journal: Path, folder: Path, since: float, *, plant: str = ""
) -> subprocess.CompletedProcess[str]:
    """The separate program, on the three files it may read."""
    tickets = folder / "tickets.json"
    tickets.write_text(lab.kubectl("get", "tickets", "-n", "pilothouse-system", "-o", "json"))
    audits = audit_files(lab)
    if plant:
        planted = folder / "planted.log"
        planted.write_text(plant)
        audits = [*audits, planted]
    command = [sys.executable, "-m", "pilothouse.testing.livecheck"]
    for path in audits:
        command += ["--audit", str(path)]
    command += ["--journal", str(journal), "--tickets", str(tickets)]
    command += ["--since", str(since), "--now", str(time())]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.timeout(300 + 60 * KILLS)
def test_killed_loop_keeps_every_promise(
    installed: Lab,
    harbor: Callable[..., Any],
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
    eventually: Callable[..., Any],
) -> None:
    harbor("crew", replicas=3, limits={"cpu": "200m", "memory": "64Mi"})
    since, journal, between = time(), tmp_path / "crash.db", 0
    for _ in range(KILLS):
        loop = LoopProcess(actuator_kubeconfig, journal, "busy", "crew")
        try:
            loop.wait_for(lambda line: "turn" in line)
            # The next intents that become durable; most deaths hit before their receipts.
            loop.wait_for(lambda line: "durable" in line, after=len(loop.lines))
            sleep(random.uniform(0, 0.03))
        finally:
            loop.signal(signal.SIGKILL)
            loop.end()
        between += bool(read_resume(journal).open_intents)
    last = LoopProcess(actuator_kubeconfig, journal, "watch")
    try:
        last.wait_for(lambda line: "turn" in line)
    finally:
        last.end()
    eventually(lambda: not residue(installed), seconds=120)
    checked = run_checker(installed, journal, tmp_path, since)
    print(f"{KILLS} kills, {between} between intent and receipt; {checked.stderr.strip()}")
    assert checked.returncode == 0, checked.stdout
    assert between >= (0.6 * KILLS if KILLS >= 10 else 1), "too few kills hit the window"
    assert "0 writes" not in checked.stderr


def a_line(intent: str, **changes: Any) -> str:
    place = {"resource": "pods", "namespace": SPACE, "name": "x", "subresource": "resize"}
    event = {
        "stage": "ResponseComplete",
        "user": {"username": "system:serviceaccount:pilothouse-system:pilothouse-actuator"},
        "verb": "patch",
        "auditID": intent,
        "requestReceivedTimestamp": "2099-01-01T00:00:00.000000Z",
        "responseStatus": {"code": 200},
        "objectRef": place | changes,
    }
    return json.dumps(event)


def test_checker_finds_what_is_planted(helm_journal: Path, installed: Lab, tmp_path: Path) -> None:
    """Without this the campaign could pass because nobody looks."""
    intents = sorted(intents_of(helm_journal))
    since = 4e9  # only what is planted
    clean = run_checker(installed, helm_journal, tmp_path, since)
    assert clean.returncode == 0, clean.stdout
    for plant, name in (
        (a_line("0123456789ab.0.0"), "I1"),
        ("\n".join([a_line(intents[0])] * 2), "I7"),
        (a_line(intents[0], namespace="kube-system"), "I9"),
        (a_line(intents[0]).replace('"patch"', '"delete"'), "I6"),
    ):
        found = run_checker(installed, helm_journal, tmp_path, since, plant=plant)
        assert found.returncode == 1
        assert name in found.stdout


def intents_of(journal: Path) -> set[str]:
    from pilothouse.testing.livecheck import read_books

    return set(read_books([journal]).intents)
