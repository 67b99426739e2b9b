# SPDX-License-Identifier: Apache-2.0
"""Being asked to stop, in places where Python drops what a signal handler raises."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEAF = """
import os, signal, sys, time
import numpy as np
from pilothouse.cli.stopping import stoppable

class Asked(type):
    def __getattr__(cls, name):  # NumPy looks for its array protocol, whatever happens here
        if not calls:
            calls.append(name)
            os.kill(os.getpid(), signal.{number})
        raise AttributeError(name)

class Thing(metaclass=Asked):
    pass

calls = []
try:
    {entered}
        np.zeros(2) == Thing()
        print("dropped" if calls else "never asked", flush=True)
        time.sleep(3)
        print("went on", flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
ONCE = "signal.signal(signal.SIGTERM, signal.default_int_handler)\n    if True:"


def said(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_stop_that_was_dropped_comes_again(number: str) -> None:
    program = DEAF.format(entered="with stoppable():", number=number)
    assert said(program) == ["dropped", "stopped"]


def test_asking_once_is_not_enough() -> None:
    """The control: with Python's own handler the same program does not notice."""
    assert said(DEAF.format(entered=ONCE, number="SIGTERM")) == ["dropped", "went on"]


def test_who_is_stopping_is_left_in_peace() -> None:
    program = """
import os, signal, time
from pilothouse.cli.stopping import stoppable
try:
    with stoppable():
        os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.5)
    print("tidied up")
"""
    assert said(program) == ["tidied up"]


def test_handlers_come_back() -> None:
    program = """
import signal
from pilothouse.cli.stopping import stoppable
numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
before = [signal.getsignal(number) for number in numbers]
with stoppable():
    pass
print([signal.getsignal(number) for number in numbers] == before, signal.getitimer(0))
"""
    assert said(program) == ["True (0.0, 0.0)"]


def test_a_busy_loop_stops_whenever_it_is_told_to(tmp_path: Path) -> None:
    """Without a pause it is nearly always inside something."""
    for turn in range(3):
        command = [sys.executable, "-m", "pilothouse.cli", "up", "--no-serve", "--json"]
        command += ["--interval=0", f"--journal={tmp_path}/{turn}.db"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loop:
            assert loop.stdout is not None
            for line in loop.stdout:
                if '"cycle"' in line:
                    loop.send_signal(signal.SIGTERM)
                    break
            rest, _ = loop.communicate(timeout=20)
        assert loop.returncode == 0
        assert json.loads(rest.splitlines()[-1])["head"]
