# SPDX-License-Identifier: Apache-2.0
"""Being asked to stop, in places where Python drops what a signal handler raises."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pilothouse.journal import verify

DEAF = """
import os, signal, sys, time
import numpy as np
from pilothouse.cli.stopping import check, stoppable

class Asked(type):
    def __getattr__(cls, name):  # NumPy looks for its array protocol, whatever happens here
        if not calls:
            calls.append(name)
            os.kill(os.getpid(), signal.{number})
        raise AttributeError(name)

class Thing(metaclass=Asked):
    pass

calls = []
with stoppable():
    np.zeros(2) == Thing()
    print("dropped" if calls else "never asked", flush=True)
    {loop}
    print("went on", flush=True)
"""


def said(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_stop_that_was_dropped_comes_again(number: str) -> None:
    assert said(DEAF.format(number=number, loop="check()")) == ["dropped"]


def test_a_handler_that_raises_is_not_enough() -> None:
    """The control: who does not look goes on."""
    assert said(DEAF.format(number="SIGTERM", loop="pass")) == ["dropped", "went on"]


@pytest.mark.parametrize("first", ["SIGTERM", "SIGINT"])
def test_who_is_stopping_is_left_in_peace(first: str) -> None:
    program = f"""
import os, signal
from pilothouse.cli.stopping import stoppable
with stoppable():
    try:
        os.kill(os.getpid(), signal.{first})
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        print("tidied up", flush=True)
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("a person is impatient")
"""
    assert said(program) == ["tidied up", "a person is impatient"]


@pytest.mark.parametrize(
    ("signals", "code"), [("SIGTERM", 0), ("SIGINT SIGTERM", 0), ("SIGTERM SIGINT", 130)]
)
def test_stopping_when_asked_is_no_failure_but_for_the_impatient(signals: str, code: int) -> None:
    program = f"""
import os, signal
from pilothouse.cli.stopping import stoppable
with stoppable():
    first, *more = [getattr(signal, name) for name in "{signals}".split()]
    try:
        os.kill(os.getpid(), first)
    finally:
        for number in more:
            os.kill(os.getpid(), number)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == (0 if code == 0 else -signal.SIGINT)
    assert ("Stopped." in done.stderr) == (code == 0)


def test_long_work_stops_at_its_next_step() -> None:
    program = """
import os, signal
from pilothouse.cli import stopping
from pilothouse.cli.output import progress
with stopping.stoppable(), progress("Training") as advance:
    stopping._asked = True  # as after a stop that was dropped
    advance()
    print("went on")
"""
    assert said(program) == []


def test_handlers_come_back_and_what_was_ignored_stays_ignored() -> None:
    program = """
import os, signal
from pilothouse.cli.stopping import check, stoppable
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a script's background job
numbers = (signal.SIGINT, signal.SIGTERM)
before = [signal.getsignal(number) for number in numbers]
with stoppable():
    os.kill(os.getpid(), signal.SIGINT)
    check()
print([signal.getsignal(number) for number in numbers] == before)
"""
    assert said(program) == ["True"]


@pytest.mark.parametrize("command", ["up", "janitor", "node-agent"])
def test_services_listen_from_the_beginning(command: str, tmp_path: Path) -> None:
    """A container's first process is not killed by a SIGTERM that nobody handles; here a slow start
    would be."""
    needed = {"up": ["--no-serve"], "janitor": [], "node-agent": ["--node=worker-1"]}[command]
    missing = tmp_path / "kubeconfig"
    os.mkfifo(missing)  # whoever opens it waits
    arguments = [sys.executable, "-m", "pilothouse.cli", command, f"--kubeconfig={missing}"]
    with subprocess.Popen([*arguments, *needed], stderr=subprocess.PIPE) as service:
        opened = os.open(missing, os.O_WRONLY)  # until it is there
        try:
            service.send_signal(signal.SIGTERM)
            _, told = service.communicate(timeout=20)
        finally:
            os.close(opened)
            service.kill()
    assert (service.returncode, told) == (0, b"Stopped.\n")


def test_a_busy_loop_stops_whenever_it_is_told_to(tmp_path: Path) -> None:
    """Without a pause it is nearly always inside something, and often waits for the disk."""
    for turn in range(4):
        command = [sys.executable, "-m", "pilothouse.cli", "up", "--no-serve", "--json"]
        journal = tmp_path / f"{turn}.db"
        command += ["--interval=0", f"--journal={journal}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loop:
            assert loop.stdout is not None
            for line in loop.stdout:
                if '"cycle"' in line:
                    loop.send_signal(signal.SIGTERM)
                    break
            rest, _ = loop.communicate(timeout=20)
        assert loop.returncode == 0
        report = verify(journal, json.loads(rest.splitlines()[-1])["head"])
        assert report.ok, report.sentence
