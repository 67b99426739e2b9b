# SPDX-License-Identifier: Apache-2.0
"""Every edge of the label, one line each."""

from __future__ import annotations

import numpy as np
import pytest

from pilothouse.errors import TraceUnreadable
from pilothouse.learn.dataset.labels import SECOND_US, Fates, LabelSettings, label
from pilothouse.learn.traces.schema import event_names

E = 1000  # the window ends here, seconds
H = 300
END_OF_TRACE = 10_000
YES, NO, UNKNOWN, NO_ROW = 1, 0, -1, None

CASES = {
    "nothing happens": ([], {}, NO),
    "fails inside the horizon": ([(E + 10, "FAIL")], {}, YES),
    "is lost inside the horizon": ([(E + 10, "LOST")], {}, YES),
    "fails one microsecond after the window": ([(E + 1e-6, "FAIL")], {}, YES),
    "fails exactly at the window's end": ([(E, "FAIL")], {}, NO_ROW),
    "fails at the window's end under the older rule": (
        [(E, "FAIL")],
        {"rule": "at-or-after"},
        YES,
    ),
    "fails exactly at the horizon": ([(E + H, "FAIL")], {}, YES),
    "fails just after the horizon": ([(E + H + 1, "FAIL")], {}, NO),
    "failed before the window": ([(E - 50, "FAIL")], {}, NO_ROW),
    "failed before and came back": ([(E - 50, "FAIL"), (E - 40, "SCHEDULE")], {}, NO),
    "failed before, came back, fails again": (
        [(E - 50, "FAIL"), (E - 40, "SCHEDULE"), (E + 9, "FAIL")],
        {},
        YES,
    ),
    "finishes, is resubmitted and fails inside the horizon": (
        [(E + 5, "FINISH"), (E + 6, "SUBMIT"), (E + 9, "FAIL")],
        {},
        YES,
    ),
    "finishes inside the horizon": ([(E + 5, "FINISH")], {}, NO),
    "is evicted inside the horizon": ([(E + 5, "EVICT")], {}, NO),
    "is evicted, and eviction is the target": ([(E + 5, "EVICT")], {"failures": ("EVICT",)}, YES),
    "is killed before it could fail": ([(E + 5, "KILL")], {}, UNKNOWN),
    "is killed, and a kill is an end": ([(E + 5, "KILL")], {"kill": "end"}, NO),
    "is killed, and a kill is a failure": ([(E + 5, "KILL")], {"kill": "failure"}, YES),
    "fails, then is killed": ([(E + 5, "FAIL"), (E + 6, "KILL")], {}, YES),
    "two failures inside the horizon": ([(E + 5, "FAIL"), (E + 90, "FAIL")], {}, YES),
    "only updates": ([(E + 5, "UPDATE_RUNNING")], {}, NO),
}


def labelled(events, settings, *, trace_end=END_OF_TRACE, complete=True, instance=0):
    times = np.array([round(t * SECOND_US) for t, _ in events], np.int64)
    fates = Fates(
        instance=np.zeros(len(events), np.int64),
        time_us=times,
        event=np.array([e for _, e in events], object),
    )
    out = label(
        np.array([instance]),
        np.array([E * SECOND_US]),
        fates,
        trace_end_us=trace_end * SECOND_US,
        complete=complete,
        settings=LabelSettings(horizons_seconds=(H,), **settings),
    )
    return out.labels[0, 0] if out.alive[0] else None


@pytest.mark.parametrize(("events", "settings", "expected"), CASES.values(), ids=CASES)
def test_label_is_what_the_edge_demands(events, settings, expected) -> None:
    assert labelled(events, settings) == expected


def test_label_is_unknown_when_the_trace_ends_inside_the_horizon() -> None:
    assert labelled([], {}, trace_end=E + H - 1) == UNKNOWN
    assert labelled([], {}, trace_end=E + H) == NO


def test_failure_counts_even_when_the_trace_is_cut_right_after_it() -> None:
    assert labelled([(E + 10, "FAIL")], {}, trace_end=E + 10) == YES


def test_silence_in_a_sample_is_unknown_not_negative() -> None:
    assert labelled([], {}, complete=False) == UNKNOWN
    assert labelled([(E + 900, "SCHEDULE")], {}, complete=False) == NO


def test_events_of_another_instance_do_not_matter() -> None:
    assert labelled([(E + 10, "FAIL")], {}, instance=7) == NO


def test_the_same_number_means_different_events_in_2011_and_2019() -> None:
    assert event_names("google-2011")[3] == "FAIL"
    assert event_names("google-2019")[3] == "SCHEDULE"
    assert event_names("google-2019")[5] == "FAIL"
    assert event_names("google-2011")[5] == "KILL"


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(TraceUnreadable, match='Unknown trace version "google-2024"'):
        event_names("google-2024")
