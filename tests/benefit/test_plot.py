# SPDX-License-Identifier: Apache-2.0
"""The picture of the benefit can be read."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib import pyplot

import benchmarks.benefit
from benchmarks.benefit.comparison import Comparison, Difference
from benchmarks.benefit.plot import figure_of


def recorded() -> dict[str, Comparison]:
    """What the committed picture was drawn from."""
    path = Path(benchmarks.benefit.__file__).parent / "results.json"
    told = json.loads(path.read_text("utf-8"))["comparisons"]

    def differences(rows):
        return {measure: Difference(**row) for measure, row in rows.items()}

    return {
        arm: Comparison(
            **one
            | {
                "pooled": differences(one["pooled"]),
                "by_scenario": {s: differences(rows) for s, rows in one["by_scenario"].items()},
            }
        )
        for arm, one in told.items()
    }


def overlaps(figure) -> list[str]:
    """Pairs of neighboring labels below an axis that touch."""
    figure.canvas.draw()
    found = []
    for axis in figure.axes:
        labels = [label for label in axis.get_xticklabels() if label.get_text()]
        boxes = sorted((label.get_window_extent().extents.tolist(), label) for label in labels)
        low, high = axis.bbox.x0, axis.bbox.x1
        shown = [(box, label) for box, label in boxes if low <= (box[0] + box[2]) / 2 <= high]
        for (left, one), (right, other) in pairwise(shown):
            if left[2] >= right[0]:
                found.append(f"{one.get_text()} and {other.get_text()}")
    return found


@pytest.fixture
def figure():
    made = figure_of(recorded())
    yield made
    pyplot.close(made)


def test_numbers_below_the_axes_do_not_overlap(figure):
    assert overlaps(figure) == []


def test_overlapping_numbers_would_be_found(figure):
    for axis in figure.axes:
        axis.set_xticks([0, 10, 100])  # where the scale is still straight
    assert overlaps(figure) != []
