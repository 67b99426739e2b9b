# SPDX-License-Identifier: Apache-2.0
"""The picture: differences to doing nothing, by scenario, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.figure import Figure

from benchmarks.benefit.comparison import Comparison

PANELS = (
    ("failed_pod_seconds", "failed-pod seconds per run"),
    ("violation_seconds", "violation seconds per run"),
)
COLORS = {"pilothouse": "#1b6ca8", "random": "#b5651d"}


def draw(comparisons: Mapping[str, Comparison], path: Path) -> None:
    """The picture, as a file."""
    figure = figure_of(comparisons)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def figure_of(comparisons: Mapping[str, Comparison]) -> Figure:
    """Two panels, one row per scenario, both arms against the line of doing nothing."""
    scenarios = [*comparisons["pilothouse"].by_scenario, "pooled"]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 5.6), sharey=True, layout="constrained")
    for axis, (measure, title) in zip(axes, PANELS, strict=True):
        for arm, shift in (("pilothouse", -0.16), ("random", 0.16)):
            comparison = comparisons[arm]
            rows = [comparison.by_scenario.get(s, comparison.pooled)[measure] for s in scenarios]
            axis.errorbar(
                [d.mean for d in rows],
                [place + shift for place in range(len(rows))],
                xerr=[[d.mean - d.low for d in rows], [d.high - d.mean for d in rows]],
                fmt="o",
                markersize=4,
                capsize=2,
                color=COLORS[arm],
                label=arm,
            )
        axis.axvline(0, color="#444444", linewidth=0.8)
        axis.set_xscale("symlog", linthresh=100)
        axis.set_title(title, fontsize=10)
        axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
    axes[0].set_yticks(range(len(scenarios)), scenarios)
    axes[0].invert_yaxis()
    figure.supxlabel("difference to doing nothing, 95 % intervals; left is better", fontsize=10)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure
