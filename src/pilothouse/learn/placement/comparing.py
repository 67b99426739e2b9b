# SPDX-License-Identifier: Apache-2.0
"""Arms side by side on the thesis's tests, simulated: tables with intervals, plots and CSV.

Every arm meets the same pods, latencies and background load. Intervals are 95 %, over seeds, of
each seed's mean. A simulated pod that fits nowhere is given up; a real one would be pending.
"""

from __future__ import annotations

import csv
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.errors import UnknownName
from pilothouse.learn.extras import need
from pilothouse.learn.placement import thesis_tests
from pilothouse.learn.placement.chooser import HEURISTICS, Chooser, Hybrid, Learned
from pilothouse.learn.placement.playing import F8, Played, play
from pilothouse.learn.placement.thesis_tests import Trial
from pilothouse.policy import Policy, shipped

LEARNED = ("ee", "lb", "el-rl")
ARMS = (*HEURISTICS, "hybrid", *LEARNED)
USUAL_ARMS = "default,most-allocated,best-fit,random,heuristic,hybrid,ee,lb,el-rl"
WINDOW = 10  # steps of the moving average


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One arm and one figure: mean and half the 95 % interval, over seeds."""

    arm: str
    figure: str
    mean: float
    half: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """What was played, and the table of it."""

    trial: Trial
    played: dict[str, Played]
    rows: tuple[Row, ...]


FIGURES: dict[str, Callable[[Played], F8]] = {
    "used nodes": lambda p: p.active.mean(axis=0),
    "chosen latency, ms": lambda p: np.nanmean(p.latency_ms, axis=0),
    "soft violations, %": lambda p: 100 * np.nanmean(p.over_soft, axis=0),
    "hard violations, %": lambda p: 100 * np.nanmean(p.over_hard, axis=0),
    "power, W modelled": lambda p: p.watts.mean(axis=0),
    "max-min load share": lambda p: p.spread.mean(axis=0),
    "pods that fitted nowhere, %": lambda p: 100 * p.hopeless.mean(axis=0),
}


def chooser_of(arm: str, find: Callable[[str], Policy] = shipped) -> Chooser:
    """The arm of this name; learned ones by their policy."""
    if arm in HEURISTICS:
        return HEURISTICS[arm]
    if arm == "hybrid":
        return Hybrid(find("el-rl").network)
    if arm not in LEARNED:
        raise UnknownName.among("arm", arm, ARMS)
    return Learned(arm, find(arm).network)


def compare(
    trial: Trial,
    arms: Sequence[str],
    *,
    seeds: int,
    find: Callable[[str], Policy] = shipped,
    told: Callable[[], None] = lambda: None,
) -> Comparison:
    """Play every arm on the same courses."""
    choosers = {arm: chooser_of(arm, find) for arm in arms}  # a bad name fails before any work
    courses = thesis_tests.courses(trial, seeds)
    played = {}
    for arm, chooser in choosers.items():
        played[arm] = play(courses, chooser)
        told()
    rows = tuple(
        _row(arm, figure, measure(own))
        for arm, own in played.items()
        for figure, measure in FIGURES.items()
    )
    return Comparison(trial=trial, played=played, rows=rows)


def _row(arm: str, figure: str, by_seed: F8) -> Row:
    many = len(by_seed)
    half = 1.96 * float(by_seed.std(ddof=1)) / many**0.5 if many > 1 else float("nan")
    return Row(arm=arm, figure=figure, mean=float(by_seed.mean()), half=half)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The table for scripts."""
    return {
        "test": comparison.trial.test,
        "simulated": True,
        "steps": comparison.trial.steps,
        "changes": list(comparison.trial.changes),
        "rows": [
            {"arm": r.arm, "figure": r.figure, "mean": r.mean, "half_95": r.half}
            for r in comparison.rows
        ],
    }


def table(comparison: Comparison) -> list[tuple[str, ...]]:
    """Arms by figures, as text."""
    figures = list(FIGURES)
    lines: list[tuple[str, ...]] = [("arm", *figures)]
    for arm in comparison.played:
        own = {r.figure: r for r in comparison.rows if r.arm == arm}
        lines.append((arm, *(f"{own[f].mean:.2f} ± {own[f].half:.2f}" for f in figures)))
    return lines


def moving_average(values: F8, window: int = WINDOW) -> F8:
    """Mean of the last ``window`` steps, fewer at the beginning; NaN is left out."""
    known = np.isfinite(values)
    sums = np.cumsum(np.where(known, values, 0.0))
    counts = np.cumsum(known)
    sums[window:] -= sums[:-window].copy() if len(sums) > window else 0
    counts[window:] -= counts[:-window].copy() if len(counts) > window else 0
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plot:
    """Curves over steps with change points; the same content as CSV and as PNG."""

    name: str
    title: str
    unit: str
    curves: dict[str, F8]  # each (steps,)
    changes: tuple[int, ...] = ()
    averaged: bool = True


def write_plot(plot: Plot, folder: Path) -> list[Path]:
    """``NAME.csv`` and ``NAME.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write_csv(plot, folder), _write_png(plot, folder)]


def _write_csv(plot: Plot, folder: Path) -> Path:
    path = folder / f"{plot.name}.csv"
    averages = {f"{k} (average of {WINDOW})": moving_average(v) for k, v in plot.curves.items()}
    columns = plot.curves | (averages if plot.averaged else {})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *columns, "change"])
        for step in range(len(next(iter(columns.values())))):
            values = [f"{c[step]:.4g}" if np.isfinite(c[step]) else "" for c in columns.values()]
            writer.writerow([step, *values, int(step in plot.changes)])
    return path


def _write_png(plot: Plot, folder: Path) -> Path:
    need("matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import figure as drawing

    make: Any = drawing.Figure
    figure = make(figsize=(9.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, values) in enumerate(plot.curves.items()):
        color = f"C{number}"
        if plot.averaged:
            axes.plot(values, color=color, alpha=0.25, linewidth=0.8)
            axes.plot(moving_average(values), color=color, label=name)
        else:
            axes.plot(values, color=color, label=name)
    for number, change in enumerate(plot.changes):
        label = "latencies change" if number == 0 else None
        axes.axvline(change, color="gray", linestyle="--", linewidth=1, label=label)
    axes.set_title(plot.title)
    axes.set_xlabel("placement")
    axes.set_ylabel(plot.unit)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(alpha=0.3)
    path = folder / f"{plot.name}.png"
    figure.savefig(path, dpi=110)
    return path


def plots_of(comparison: Comparison) -> list[Plot]:
    """Used nodes and chosen latency by arm, means over seeds."""
    changes = comparison.trial.changes
    both: tuple[tuple[str, str, str, Callable[[Played], F8]], ...] = (
        ("used-nodes", "Used nodes", "nodes", lambda p: p.active.mean(axis=1)),
        ("latency", "Chosen latency", "ms", lambda p: np.nanmean(p.latency_ms, axis=1)),
    )
    return [
        Plot(
            name=f"test{comparison.trial.test}-{name}",
            title=f"{title}, test {comparison.trial.test}, simulated",
            unit=unit,
            curves={arm: pick(own) for arm, own in comparison.played.items()},
            changes=changes,
        )
        for name, title, unit, pick in both
    ]


def write_page(folder: Path, title: str, tables: Sequence[Comparison], notes: str) -> Path:
    """One HTML page with the tables and every PNG of the folder."""
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(notes)}</p>"]
    for comparison in tables:
        parts.append(f"<h2>Test {comparison.trial.test}</h2><table>")
        for number, line in enumerate(table(comparison)):
            tag = "th" if number == 0 else "td"
            cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
            parts.append(f"<tr>{cells}</tr>")
        parts.append("</table>")
    for picture in sorted(folder.glob("*.png")):
        name = html.escape(picture.name)
        parts.append(f'<figure><img src="{name}" alt="{name}"></figure>')
    style = (
        "body{font:15px system-ui;max-width:72em;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse}td,th{padding:.25em .7em;text-align:left;"
        "border-bottom:1px solid #ccc}img{max-width:100%}figure{margin:1.5em 0}"
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{style}</style>{''.join(parts)}</html>"
    )
    path = folder / "index.html"
    path.write_text(page, encoding="utf-8")
    return path
