# SPDX-License-Identifier: Apache-2.0
"""A report: one JSON document, one page that opens without a network, one model card.

Plots are small SVG drawings made here; a reader can see where the curve bends, which is all they
are for. Whatever is in the JSON is on the page, so nothing can be quietly left out.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pilothouse.learn import artifacts
from pilothouse.learn.artifacts import Manifest, Part

WIDTH, HEIGHT, EDGE = 360, 240, 36
STYLE = (
    "body{font:15px/1.45 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.15rem .7rem;text-align:left;"
    "border-bottom:1px solid #ddd;vertical-align:top}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "details{margin:.4rem 0}summary{cursor:pointer}"
    "svg{margin:.5rem 1rem .5rem 0}.card{background:#f6f6f3;padding:.5rem 1rem}"
)


def write(
    target: Path,
    title: str,
    figures: dict[str, Any],
    *,
    inputs: tuple[Part, ...],
    settings: dict[str, Any],
    card: dict[str, str],
) -> Manifest:
    """``report.json``, ``report.html`` and ``card.md`` in one sealed folder."""
    with artifacts.replacing(target) as folder:
        artifacts.write_atomically(folder / "report.json", artifacts.to_json(figures))
        page = _page(title, figures, card)
        artifacts.write_atomically(folder / "report.html", page.encode())
        artifacts.write_atomically(folder / "card.md", _card(title, figures, card).encode())
        headline = {k: v for k, v in figures.items() if isinstance(v, (int, float, str))}
        artifacts.seal(
            folder,
            name=target.name,
            kind="report",
            track=str(figures.get("track", title)),
            inputs=inputs,
            settings=settings,
            facts=headline,
        )
    return artifacts.load(target)


def _page(title: str, figures: dict[str, Any], card: dict[str, str]) -> str:
    """What a reader looks for first: the headline and the curves; the rest folded below."""
    plots = "".join(_plots(figures.get("curves", {})))
    plain = {k: v for k, v in figures.items() if k != "curves"}
    short = {k: v for k, v in plain.items() if not isinstance(v, (dict, list)) or _is_row(v)}
    folded = "".join(
        f"<details><summary>{html.escape(key)}</summary>{_table(value)}</details>"
        for key, value in plain.items()
        if key not in short
    )
    about = "".join(f"<p><b>{html.escape(k)}</b> {html.escape(v)}</p>" for k, v in card.items())
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1><div class=card>{about}</div>"
        f"<h2>Figures</h2>{_table(short)}<h2>Curves</h2>{plots or '<p>None.</p>'}"
        f"<h2>All figures</h2>{folded or '<p>None.</p>'}</html>\n"
    )


def _is_row(value: Any) -> bool:
    """A few plain values, or a few plain values by name: short enough to be read at once."""
    inner = list(value.values()) if isinstance(value, dict) else value
    return len(inner) <= 24 and all(isinstance(v, (int, float, str)) for v in inner)


def _table(value: Any) -> str:
    if isinstance(value, dict):
        rows = "".join(
            f"<tr><th>{html.escape(str(k))}</th><td>{_table(v)}</td></tr>" for k, v in value.items()
        )
        return f"<table>{rows}</table>"
    if isinstance(value, (list, tuple)):
        if all(isinstance(v, (int, float, str)) for v in value):
            return ", ".join(_number(v) for v in value)
        return "".join(_table(v) for v in value)
    return _number(value)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


def _plots(curves: dict[str, Any]) -> list[str]:
    titles = {
        "precision_recall": ("Precision over recall", "recall", "precision"),
        "reliability": ("Calibration", "predicted", "observed"),
        "lead_time": (
            "Lead time, 5 % of rows alerted",
            "minutes before the failure",
            "share warned",
        ),
    }
    out = []
    for name, curve in curves.items():
        if isinstance(curve, dict):
            out.append(_bars(_BARS.get(name, name), curve))
            continue
        title, x_name, y_name = titles.get(name, (name, "", ""))
        out.append(_svg(title, x_name, y_name, *curve, diagonal=name == "reliability"))
    return out


_BARS = {"drift": "Drift: stability index, 0.25 is a lot"}
MOST_BARS = 12


def _bars(title: str, values: dict[str, float]) -> str:
    """The largest values as bars, a line each."""
    shown = sorted(values.items(), key=lambda item: -item[1])[:MOST_BARS]
    top = max((value for _, value in shown), default=1.0) or 1.0
    height = 28 + 18 * len(shown)
    rows = "".join(
        f'<text x="200" y="{40 + 18 * line}" text-anchor="end" font-size="12">'
        f"{html.escape(name)}</text>"
        f'<rect x="206" y="{29 + 18 * line}" width="{220 * max(value, 0) / top:.1f}" height="13" '
        f'fill="#1a6"/><text x="{212 + 220 * max(value, 0) / top:.1f}" y="{40 + 18 * line}" '
        f'font-size="11">{value:.3g}</text>'
        for line, (name, value) in enumerate(shown)
    )
    return (
        f'<svg width="500" height="{height + 12}" role="img" aria-label="{html.escape(title)}">'
        f'<text x="0" y="16" font-weight="bold">{html.escape(title)}</text>{rows}</svg>'
    )


def _svg(
    title: str, x_name: str, y_name: str, x: Sequence[float], y: Sequence[float], *, diagonal: bool
) -> str:
    top = max(max(x, default=1), 1e-9), max(max(y, default=1), 1e-9)
    if diagonal:
        top = (max(top), max(top))

    def place(a: float, b: float) -> str:
        across = EDGE + (WIDTH - 2 * EDGE) * a / top[0]
        up = HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * b / top[1]
        return f"{across:.1f},{up:.1f}"

    line = " ".join(place(a, b) for a, b in zip(x, y, strict=True))
    guide = (
        f'<polyline points="{place(0, 0)} {place(*top)}" stroke="#bbb" fill="none"/>'
        if diagonal
        else ""
    )
    frame = f'<polyline points="{place(0, top[1])} {place(0, 0)} {place(top[0], 0)}"'
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f'<text x="{EDGE}" y="18" font-weight="bold">{html.escape(title)}</text>'
        f'{frame} stroke="#888" fill="none"/>{guide}'
        f'<polyline points="{line}" stroke="#1a6" stroke-width="2" fill="none"/>'
        f'<text x="{EDGE}" y="{HEIGHT - 8}" font-size="11">{html.escape(x_name)}, to '
        f"{top[0]:.3g}; {html.escape(y_name)}, to {top[1]:.3g}</text></svg>"
    )


def _card(title: str, figures: dict[str, Any], card: dict[str, str]) -> str:
    lines = [f"# {title}", ""]
    lines += [f"**{key}** {value}\n" for key, value in card.items()]
    lines += ["| figure | value |", "|---|---|"]
    lines += [
        f"| {k} | {_number(v)} |"
        for k, v in figures.items()
        if isinstance(v, (int, float, str)) and k != "track"
    ]
    return "\n".join(lines) + "\n"
