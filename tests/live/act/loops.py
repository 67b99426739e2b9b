# SPDX-License-Identifier: Apache-2.0
"""Loops in processes of their own, what they leave behind, and the program that checks on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import monotonic, time
from typing import Any

from pilothouse.clients.keys import gates_in
from pilothouse.lab import Lab
from tests.live.act.helm import audit_files, notes, read

ROOT = Path(__file__).parents[3]


class LoopProcess:
    """A loop of its own; its lines are read as they come.

    ``stop`` names a place between an intent and its receipt at which it stops by itself, to be
    killed there; see ``process``.
    """

    def __init__(
        self, kubeconfig: Path, journal: Path, *plan: str, stop: str = "", **settings: Any
    ) -> None:
        command = [sys.executable, "-u", "-m", "tests.live.act.process"]
        self.errors = journal.with_suffix(".err")
        told = {
            "PILOTHOUSE_TEST_SETTINGS": json.dumps(settings),
            "PILOTHOUSE_TEST_STOP": stop,
        }
        with self.errors.open("ab") as errors:
            self.child = subprocess.Popen(
                [*command, str(kubeconfig), str(journal), *plan],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=os.environ | told,
            )
        self.lines: list[dict[str, Any]] = []
        self.arrived = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if line.startswith("{"):
                with self.arrived:
                    self.lines.append(json.loads(line))
                    self.arrived.notify_all()

    def wait_for(
        self, look: Callable[[dict[str, Any]], bool], seconds: float = 150.0, after: int = 0
    ) -> Any:
        deadline, seen = monotonic() + seconds, after
        with self.arrived:
            while True:
                for line in self.lines[seen:]:
                    if look(line):
                        return line
                seen = len(self.lines)
                ended = self.child.poll()
                assert ended is None, (ended, self.errors.read_text()[-800:])
                assert self.arrived.wait(max(deadline - monotonic(), 0.01)) or (
                    monotonic() < deadline
                ), (self.lines[-5:], self.errors.read_text()[-500:])

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(20)
        self._reader.join(10)
        if self.child.stdout is not None:
            self.child.stdout.close()


def give_up_lease(lab: Lab) -> None:
    """What a dead loop's lease comes to after 15 s; waiting for that tests nothing here."""
    words = ("lease", "pilothouse", "-n", "pilothouse-system", "--type=merge")
    lab.kubectl("patch", *words, "-p", json.dumps({"spec": {"holderIdentity": ""}}))


def when(event: dict[str, Any]) -> float:
    moment = str(event["requestReceivedTimestamp"]).replace("Z", "+00:00")
    return datetime.fromisoformat(moment).timestamp()


def residue(lab: Lab) -> list[str]:
    """Everything of ours that is on somebody's object."""
    found = []
    for node in read(lab, "nodes")["items"]:
        written = node["metadata"].get("annotations", {})
        found += [f"{key}={value}" for key, value in written.items() if _is_ours(key)]
        found += [t["key"] for t in node["spec"].get("taints", []) if _is_ours(t["key"])]
    found += [f"gate {space}" for space in gates_in(notes(lab, "pilothouse-gates"))]
    templates = {r["metadata"]["uid"]: r["spec"] for r in read(lab, "rs", "-A")["items"]}
    for pod in read(lab, "pods", "-A")["items"]:
        name, held = pod["metadata"]["name"], pod["spec"].get("schedulingGates", [])
        found += [f"gated {name}" for g in held if _is_ours(g["name"])]
        owner = next((o["uid"] for o in pod["metadata"].get("ownerReferences", [])), "")
        if owner in templates and _capped(pod["spec"], templates[owner]["template"]["spec"]):
            found.append(f"capped {name}")
    return found


def _capped(spec: dict[str, Any], template: dict[str, Any]) -> bool:
    """Whether a pod has other resources than whoever made it gave it."""
    given = [c.get("resources") or {} for c in template["containers"]]
    return [c.get("resources") or {} for c in spec["containers"]] != given


def _is_ours(key: str) -> bool:
    return key.startswith("pilothouse.dev/") and key not in (
        "pilothouse.dev/lab",
        "pilothouse.dev/fake",
        "pilothouse.dev/frequency-status",
    )


def run_checker(
    lab: Lab, journals: list[Path], folder: Path, since: float, *options: str
) -> subprocess.CompletedProcess[str]:
    """The separate program, on the files it may read; ``options`` come last and add to them."""
    tickets = folder / "tickets.json"
    tickets.write_text(lab.kubectl("get", "tickets", "-n", "pilothouse-system", "-o", "json"))
    command = [sys.executable, "-m", "pilothouse.testing.livecheck"]
    for path in audit_files(lab):
        command += ["--audit", str(path)]
    for path in journals:
        command += ["--journal", str(path)]
    command += ["--tickets", str(tickets), "--since", str(since), "--now", str(time())]
    return subprocess.run([*command, *options], capture_output=True, text=True)
