# SPDX-License-Identifier: Apache-2.0
"""What the loop says about how long its steps took."""

from __future__ import annotations

import time

import pytest

from pilothouse.loop import Stopwatch
from tests.loop.test_default_scenario import turns


def test_every_step_of_a_cycle_has_a_duration_of_its_own():
    turn = next(iter(turns(0, 1)))
    for step in ("observe", "predict", "propose", "guard", "arbitrate", "act"):
        assert turn.timings[step] > 0.0, step


def test_step_within_a_step_is_not_counted_twice(monkeypatch):
    ticks = iter([0.0, 1.0, 3.0, 3.5, 4.0, 5.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    watch = Stopwatch()
    with watch("arbitrate"):
        with watch("guard"):
            pass
        with watch("guard"):
            pass
    assert watch.milliseconds == pytest.approx({"guard": 2_500.0, "arbitrate": 2_500.0})
