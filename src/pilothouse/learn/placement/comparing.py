# SPDX-License-Identifier: Apache-2.0
"""Arms side by side on the thesis's tests: tables with intervals, plots and CSV.

Every arm meets the same pods, latencies and background load. Intervals are 95 %, over seeds, of
each seed's mean, by Student's t. Simulated, a pod that fits nowhere is given up and any other is
bound at once, so nothing is pending; on a real cluster it is pending until patience ends. Energy is
modelled, at the thesis's pace of placements.
"""

from __future__ import annotations

import csv
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.errors import UnknownName
from pilothouse.learn.extras import need
from pilothouse.learn.placement import thesis_tests
from pilothouse.learn.placement.chooser import HEURISTICS, Chooser, Hybrid, Learned
from pilothouse.learn.placement.intervals import t95
from pilothouse.learn.placement.playing import F8, Played, play
from pilothouse.learn.placement.thesis_tests import Trial
from pilothouse.policy import Policy, shipped

LEARNED = ("ee", "lb", "el-rl")
ARMS = (*HEURISTICS, "hybrid", *LEARNED)
USUAL_ARMS = "default,most-allocated,best-fit,random,heuristic,hybrid,ee,lb,el-rl"
WINDOW = 10  # steps of the moving average
ENERGY = "energy, Wh modelled"
NOTHING_PENDS = (
    "Pending time is 0 because it is simulated: time stands still from a pod's arrival to its "
    "binding. Real schedulers are timed with --live."
)


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
    profiles: dict[str, str] = field(default_factory=dict)  # by arm; empty: simulated
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"test {self.trial.test}" + (", nodes move" if self.trial.nodes_move else "")

    @property
    def changes(self) -> tuple[int, ...]:
        """Steps at which latencies or nodes change.

        Where nodes move a real cluster's latencies stay. Simulated, the second change of latencies
        comes after lost pods were placed again, which are not as many in every course and arm: no
        one step could mark it.
        """
        if not self.trial.nodes_move:
            return self.trial.changes
        lost = self.trial.lost_at
        return (lost,) if self.profiles else (self.trial.changes[0], lost)

    @property
    def change(self) -> str:
        """What changes there."""
        if not self.trial.nodes_move:
            return "latencies change"
        return "nodes change" if self.profiles else "latencies, then nodes change"

    @property
    def where(self) -> str:
        return "on a real cluster" if self.profiles else "simulated"


def mean_of(values: F8) -> F8:
    """(courses,), over what has a meaning; NaN where nothing has."""
    known = np.isfinite(values)
    count = known.sum(axis=0)
    sums = np.where(known, values, 0.0).sum(axis=0)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def _energy_wh(played: Played, trial: Trial) -> F8:
    """Modelled: what the used nodes draw until the next placement, at the thesis's pace."""
    seconds = np.array([trial.seconds_before(step + 1) for step in range(len(played.watts))])
    energy: F8 = played.watts * seconds[:, None] / 3600
    return energy


FIGURES: dict[str, Callable[[Played, Trial], F8]] = {
    "used nodes": lambda p, trial: p.active,
    "chosen latency, ms": lambda p, trial: p.latency_ms,
    "soft violations, %": lambda p, trial: 100 * p.over_soft,
    "hard violations, %": lambda p, trial: 100 * p.over_hard,
    ENERGY: _energy_wh,
    "max-min load share": lambda p, trial: p.spread,
    "pending, s": lambda p, trial: p.pending_seconds,
    "pods that fitted nowhere, %": lambda p, trial: 100 * p.hopeless,
}
"""By step, (steps, courses). A course's figure is the mean of its steps; of energy, the sum."""


def _by_course(figure: str, values: F8) -> F8:
    whole: F8 = np.nansum(values, axis=0) if figure == ENERGY else mean_of(values)
    return whole


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
    notes = (*trial.deviations(), NOTHING_PENDS)
    return Comparison(trial=trial, played=played, rows=rows_of(played, trial), notes=notes)


def rows_of(played: dict[str, Played], trial: Trial) -> tuple[Row, ...]:
    """Every figure of every arm."""
    return tuple(
        _row(arm, figure, _by_course(figure, measure(own, trial)))
        for arm, own in played.items()
        for figure, measure in FIGURES.items()
    )


def _row(arm: str, figure: str, by_seed: F8) -> Row:
    many = len(by_seed)
    half = t95(many) * float(by_seed.std(ddof=1)) / many**0.5 if many > 1 else float("nan")
    return Row(arm=arm, figure=figure, mean=float(by_seed.mean()), half=half)


def followed(comparison: Comparison) -> dict[str, list[int | None]]:
    """By arm, after each change: placements until the load followed in all seeds.

    It followed when every later pod keeps its soft limit; None: not before the next change. A
    change that no placement comes after says nothing.
    """
    starts = comparison.changes
    found: dict[str, list[int | None]] = {}
    for arm, own in comparison.played.items():
        spans = list(zip(starts, (*starts[1:], len(own.in_soft)), strict=True))
        counts = [(own.followed_after(a, b), b - a) for a, b in spans if b > a]
        found[arm] = [count if count <= many else None for count, many in counts]
    return found


def said_of_following(comparison: Comparison) -> str:
    """The same as a sentence."""
    told = (
        f"{arm} " + " and ".join("never" if count is None else str(count) for count in counts)
        for arm, counts in followed(comparison).items()
    )
    return (
        f"Placements until the load followed in every seed ({comparison.change}): "
        f"{', '.join(told)}."
    )


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The table for scripts."""
    return {
        "test": comparison.trial.test,
        "nodes_move": comparison.trial.nodes_move,
        "simulated": not comparison.profiles,
        "profiles": comparison.profiles,
        "notes": list(comparison.notes),
        "steps": comparison.trial.steps,
        "changes": list(comparison.changes),
        "placements_until_followed": followed(comparison),
        "rows": [
            {
                "arm": r.arm,
                "figure": r.figure,
                "mean": r.mean if np.isfinite(r.mean) else None,
                "half_95": r.half if np.isfinite(r.half) else None,  # one seed has no interval
            }
            for r in comparison.rows
        ],
    }


def table(comparison: Comparison) -> list[tuple[str, ...]]:
    """Arms by figures, as text."""
    figures = list(FIGURES)
    lines: list[tuple[str, ...]] = [("arm", *figures)]
    for arm in comparison.played:
        own = {r.figure: r for r in comparison.rows if r.arm == arm}
        lines.append((arm, *(cell(own[f]) for f in figures)))
    return lines


def cell(row: Row) -> str:
    if not np.isfinite(row.mean):
        return "-"
    return f"{row.mean:.2f}" + (f" ± {row.half:.2f}" if np.isfinite(row.half) else "")


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
    change: str = "latencies change"


def write_plot(plot: Plot, folder: Path) -> list[Path]:
    """``NAME.csv`` and ``NAME.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write_csv(plot, folder), _write_png(plot, folder)]


def _write_csv(plot: Plot, folder: Path) -> Path:
    path = folder / f"{plot.name}.csv"
    averages = {f"{k} (average of {WINDOW})": moving_average(v) for k, v in plot.curves.items()}
    columns = plot.curves | averages
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *columns, "change"])
        for step in range(max(map(len, columns.values()))):
            values = [_at(column, step) for column in columns.values()]
            writer.writerow([step, *values, int(step in plot.changes)])
    return path


def _at(column: F8, step: int) -> str:
    """A value as text; empty where it has no meaning, and after the end."""
    return f"{column[step]:.4g}" if step < len(column) and np.isfinite(column[step]) else ""


def write_steps(comparison: Comparison, folder: Path) -> Path:
    """``testN-steps.csv``: every figure of every arm after every placement, means over seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"test{comparison.trial.test}-steps.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "arm", *FIGURES, "change"])
        for arm, own in comparison.played.items():
            columns = [mean_of(figure(own, comparison.trial).T) for figure in FIGURES.values()]
            for step in range(len(own.active)):
                values = [_at(column, step) for column in columns]
                writer.writerow([step, arm, *values, int(step in comparison.changes)])
    return path


def _alike(curves: dict[str, F8]) -> list[list[str]]:
    """Names by curve: equal ones share a line, or the last drawn would hide the others."""
    groups: list[list[str]] = []
    for name, values in curves.items():
        for names in groups:
            if np.array_equal(curves[names[0]], values, equal_nan=True):
                names.append(name)
                break
        else:
            groups.append([name])
    return groups


def _write_png(plot: Plot, folder: Path) -> Path:
    need("matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import figure as drawing

    make: Any = drawing.Figure
    figure = make(figsize=(9.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for number, names in enumerate(_alike(plot.curves)):
        color, values = f"C{number}", plot.curves[names[0]]
        axes.plot(values, color=color, alpha=0.45, linewidth=0.8)
        axes.plot(moving_average(values), color=color, label=", ".join(names))
    for number, change in enumerate(plot.changes):
        label = plot.change if number == 0 else None
        axes.axvline(change, color="gray", linestyle="--", linewidth=1, label=label)
    axes.set_title(f"{plot.title}; thin: raw, thick: average of {WINDOW}")
    axes.set_xlabel("placement")
    axes.set_ylabel(plot.unit)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(alpha=0.3)
    path = folder / f"{plot.name}.png"
    figure.savefig(path, dpi=110)
    return path


def plots_of(comparison: Comparison) -> list[Plot]:
    """Used nodes and chosen latency by arm, means over seeds."""
    trial = comparison.trial
    both: tuple[tuple[str, str, str, Callable[[Played], F8]], ...] = (
        ("used-nodes", "Used nodes", "nodes", lambda p: mean_of(p.active.T)),
        ("latency", "Chosen latency", "ms", lambda p: mean_of(p.latency_ms.T)),
    )
    return [
        Plot(
            name=f"test{trial.test}-{name}",
            title=f"{title}, {comparison.name}, {comparison.where}",
            unit=unit,
            curves={arm: pick(own) for arm, own in comparison.played.items()},
            changes=comparison.changes,
            change=comparison.change,
        )
        for name, title, unit, pick in both
    ]


def write_page(folder: Path, title: str, tables: Sequence[Comparison], notes: str) -> Path:
    """One HTML page with the tables and every PNG of the folder."""
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(notes)}</p>"]
    for comparison in tables:
        parts.append(f"<h2>{comparison.name.capitalize()}, {comparison.where}</h2>")
        said = [f"{arm}: {words}." for arm, words in comparison.profiles.items()]
        parts += [f"<p>{html.escape(note)}</p>" for note in (*said, *comparison.notes)]
        parts.append("<table>")
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
        "border-bottom:1px solid #ccc}td{white-space:nowrap}"
        "img{max-width:100%}figure{margin:1.5em 0}"
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{style}</style>{''.join(parts)}</html>"
    )
    path = folder / "index.html"
    path.write_text(page, encoding="utf-8")
    return path
