# SPDX-License-Identifier: Apache-2.0
"""What the runs say together, and which bounds they miss."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.scheduling.arms import BROKEN
from pilothouse.learn.placement.intervals import t95

RATIO, RATIO_LOW, RATIO_BROKEN = 0.95, 0.90, 0.90  # of the stock scheduler's pods per second
CPU = 1.08  # of its processor time per pod
MEDIAN_MS, P99_MS = 0.4, 1.5  # that a cycle may take longer
WIDEST = 0.05  # half of a throughput's interval, as a share of it
UNKNOWN = 1e9  # above every ratio, and a number that JSON has


def summarize(arm: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of one arm, and its ratios to the stock runs of the same turn."""
    own = [run for run in runs if run["arm"] == arm]
    stock = [run for run in runs if run["arm"] == "stock"]
    ratios = _ratios(own, stock, "pods_per_second")
    low, high = _interval(ratios)
    mean_low, mean_high = _mean_interval(ratios)
    return {
        "runs": len(own),
        "pods_per_second": statistics.median(r["pods_per_second"] for r in own),
        "cpu_ms_per_pod": 1000 * statistics.median(r["cpu_seconds_per_pod"] for r in own),
        "ratio": _median(ratios),
        "ratio_low": low,
        "ratio_high": high,
        "mean_ratio": _mean(ratios) if ratios else None,
        "mean_ratio_low": mean_low,
        "mean_ratio_high": mean_high,
        "cpu_ratio": _median(_ratios(own, stock, "cpu_seconds_per_pod")),
        "prescore_p50_ms": _median(r["prescore_ms"].get("p50") for r in own),
        "prescore_p99_ms": _median(r["prescore_ms"].get("p99") for r in own),
        "own_p50_ms": _median(_own_ms(r, "p50") for r in own),
        "own_p99_ms": _median(_own_ms(r, "p99") for r in own),
        "own_p99_ms_best": _least(_own_ms(r, "p99") for r in own),
        "cycle_ms": _median(r["cycle_ms"] for r in own),
        "cycle_p50_ms": _median(_cycle(r, "p50") for r in own),
        "cycle_p99_ms": _median(_cycle(r, "p99") for r in own),
        "score_ms": _median(r["score_ms"] for r in own),
        "added_cycle_ms": _added(own, stock, lambda r: r["cycle_ms"]),
        "added_cycle_p50_ms": _added(own, stock, lambda r: _cycle(r, "p50")),
        "added_cycle_p99_ms": _added(own, stock, lambda r: _cycle(r, "p99")),
        "added_score_ms": _added(own, stock, lambda r: r["score_ms"]),
        "plugin_call_ms": _calls(own),
        "garbage": _met(own),
        "errors": sum(r["errors"] for r in own),
        "panics": sum(r["panics"] for r in own),
        "paths": own[-1]["paths"],
    }


def too_wide(found: dict[str, Any]) -> float | None:
    """Half of the interval of an arm's mean ratio as a share of it, where that is too much."""
    if found["mean_ratio"] is None:
        return None
    half = (found["mean_ratio_high"] - found["mean_ratio_low"]) / 2 / found["mean_ratio"]
    return half if half > WIDEST else None


def _ratios(
    own: Sequence[dict[str, Any]], stock: Sequence[dict[str, Any]], what: str
) -> list[float]:
    """To the mean of the stock runs of the same turn, before and after it."""
    found = []
    for run in own:
        beside = [other[what] for other in stock if other["turn"] == run["turn"]]
        found += [run[what] / _mean(beside)] if beside else []
    return found


def _cycle(run: dict[str, Any], which: str) -> float | None:
    """Of a whole cycle; runs before 16 November 2026 have its mean alone."""
    known: dict[str, float] = run.get("cycle_quantiles_ms", {})
    return known.get(which)


def _own_ms(run: dict[str, Any], which: str) -> float | None:
    """What the plugin itself takes of a cycle: PreScore's quantile, and the mean of the rest.

    The scheduler times the rest in a tenth of its cycles only; Score once for every node.
    """
    if which not in run["prescore_ms"]:
        return None
    rest = {point: ms for point, ms in run["plugin_call_ms"].items() if point != "PreScore"}
    score = rest.pop("Score", 0.0) * run["nodes"]
    return float(run["prescore_ms"][which]) + score + sum(rest.values())


def _added(
    own: Sequence[dict[str, Any]],
    stock: Sequence[dict[str, Any]],
    what: Callable[[dict[str, Any]], float | None],
) -> float | None:
    """By how much longer than in the stock runs of the same turn, in the median."""
    found = []
    for run in own:
        beside = [what(other) for other in stock if other["turn"] == run["turn"]]
        known = [value for value in beside if value is not None]
        if known and (took := what(run)) is not None:
            found.append(took - statistics.mean(known))
    return _median(found)


def _calls(own: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Our plugin's time per call, by extension point; medians."""
    told = [run.get("plugin_call_ms", {}) for run in own]
    points = sorted({point for calls in told for point in calls})
    return {point: _median(calls.get(point) for calls in told) for point in points}


def _met(own: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How often the plugin was given each kind of garbage; before 18 November 2026 not counted."""
    met: Counter[str] = Counter()
    for run in own:
        met.update(run.get("garbage", {}))
    return dict(met)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _mean(ratios: Sequence[float]) -> float:
    """The geometric one: half as fast and twice as fast are as far from equal."""
    return float(np.exp(np.mean(np.log(ratios))))


def _mean_interval(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the geometric mean, by Student's t; a single pair says nothing."""
    if len(ratios) < 2:
        return 0.0, UNKNOWN
    error = statistics.stdev(np.log(ratios).tolist()) / len(ratios) ** 0.5
    off = math.exp(t95(len(ratios)) * error)
    return _mean(ratios) / off, _mean(ratios) * off


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median, by resampling the pairs."""
    if len(ratios) < 2:
        return 0.0, UNKNOWN
    drawn = np.random.default_rng(0).choice(ratios, (4000, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def missed(arm: str, found: dict[str, Any], *, reported: bool = False) -> list[str]:
    """The bounds that an arm misses, each as a sentence; of a cost that is only reported, none."""
    checks = {f"{arm}: {found['errors']:.0f} pods failed": found["errors"] == 0}
    checks[f"{arm}: {found['panics']:.0f} panics"] = found["panics"] == 0
    unmet = [kind for kind, count in found["garbage"].items() if count == 0]
    checks[f"{arm}: never met {', '.join(unmet)}"] = not unmet
    if not reported:
        checks |= _held(arm, found)
    return [text for text, holds in checks.items() if not holds]


def _held(arm: str, found: dict[str, Any]) -> dict[str, bool]:
    checks: dict[str, bool] = {}
    if arm in BROKEN and found["mean_ratio"] is not None:
        said = f"{arm}: mean ratio {found['mean_ratio']:.3f}, needs {RATIO_BROKEN}"
        checks[said] = found["mean_ratio"] >= RATIO_BROKEN
        half = too_wide(found)
        said = f"the mean ratio is known to ± {100 * (half or 0):.1f} %, needs ± {100 * WIDEST:g} %"
        checks[f"{arm}: {said}: --resume --most-runs N adds turns"] = half is None
    if arm == "plugin" and found["ratio"] is not None:
        low = found["ratio_low"]
        checks |= {
            f"{arm}: ratio {found['ratio']:.3f}, needs {RATIO}": found["ratio"] >= RATIO,
            f"{arm}: the ratio's lower bound {low:.3f}, needs {RATIO_LOW}": low >= RATIO_LOW,
        }
    if arm in ("plugin", *BROKEN):
        checks |= cost(arm, found)
    return checks


def cost(arm: str, found: dict[str, Any], *, room: float | None = None) -> dict[str, bool]:
    """What the plugin adds. Few short runs need some ``room`` for processor time, and of the 99th
    percentile the best one counts: it is of a few cycles there, and what else the machine does adds
    to them. The rest is the median of the turns, as in the full form.
    """
    p99 = found["own_p99_ms" if room is None else "own_p99_ms_best"]
    times = {
        "the plugin's own median": (found["own_p50_ms"], MEDIAN_MS),
        "the plugin's own p99": (p99, P99_MS),
        # Also what the scheduler does around another plugin. Its p99 lies in a bucket of 16 ms.
        "a cycle's median, more than stock": (found["added_cycle_p50_ms"], MEDIAN_MS),
    }
    checks = {}
    for what, (took, limit) in times.items():
        said = "was never measured" if took is None else f"{took:.3f} ms, limit {limit}"
        checks[f"{arm}: {what} {said}"] = took is not None and took <= limit
    cpu = found["cpu_ratio"]
    if cpu is not None:
        limit = CPU * (room or 1)
        checks[f"{arm}: CPU per pod {cpu:.3f} x stock, limit {limit:.3f}"] = cpu <= limit
    return checks


def table(summary: dict[str, dict[str, Any]]) -> str:
    """One line per arm, as the README shows them."""
    lines = [
        "| arm | runs | pods/s | × stock | 95 % | CPU ms/pod | × stock | cycle ms | added "
        "| p50 added | p99 added | PreScore p50 | p99 ms | own p50 | p99 ms |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for arm, s in summary.items():
        known = arm != "stock" and s["ratio_high"] < UNKNOWN
        spread = f"{s['ratio_low']:.2f}-{s['ratio_high']:.2f}" if known else ""
        lines.append(
            f"| {arm} | {s['runs']} | {s['pods_per_second']:.0f} | {_cell(s['ratio'])} | {spread} "
            f"| {s['cpu_ms_per_pod']:.2f} | {_cell(s['cpu_ratio'])} | {_cell(s['cycle_ms'])} "
            f"| {_cell(s['added_cycle_ms'])} | {_cell(s['added_cycle_p50_ms'])} "
            f"| {_cell(s['added_cycle_p99_ms'])} "
            f"| {_cell(s['prescore_p50_ms'])} | {_cell(s['prescore_p99_ms'])} "
            f"| {_cell(s['own_p50_ms'])} | {_cell(s['own_p99_ms'])} |"
        )
    return "\n".join(lines)


def means(summary: dict[str, dict[str, Any]]) -> str:
    """How well each arm's mean ratio is known."""
    lines = ["| arm | mean ratio | 95 % | known to |", "|---|---:|---|---:|"]
    for arm, s in summary.items():
        low, high = s["mean_ratio_low"], s["mean_ratio_high"]
        if arm != "stock" and s["mean_ratio"] is not None and high < UNKNOWN:
            half = 50 * (high - low) / s["mean_ratio"]
            spread = f"{low:.2f}-{high:.2f}"
            lines.append(f"| {arm} | {s['mean_ratio']:.2f} | {spread} | ± {half:.1f} % |")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
