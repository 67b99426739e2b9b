# SPDX-License-Identifier: Apache-2.0
"""The table of the README, written by the run that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.benefit.claims import Claim
from benchmarks.benefit.comparison import Comparison, Difference

BEGIN, END = "<!-- figures: written by run.py -->", "<!-- end of figures -->"


def table(ours: Comparison, chance: Comparison, held: Sequence[Claim]) -> str:
    """Markdown: one row per scenario, then the pool, then the claims."""
    lines = [
        "| scenario | failed: nothing | pilothouse | random | violation: nothing | pilothouse "
        "| random | energy, pilothouse |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for scenario in ours.by_scenario:
        lines.append(_row(scenario, ours.by_scenario[scenario], chance.by_scenario[scenario]))
    lines.append(_row("**pooled**", ours.pooled, chance.pooled))
    lines += ["", "Seconds per run of the do-nothing arm, then differences to it with 95 % "]
    lines[-1] += "intervals; negative is better."
    lines += ["", *(f"- {'holds' if c.holds else 'FAILS'}: {c.sentence}." for c in held)]
    return "\n".join(lines)


def _row(name: str, ours: Mapping[str, Difference], chance: Mapping[str, Difference]) -> str:
    failed, broken = "failed_pod_seconds", "violation_seconds"
    energy = ours["energy_joules"]
    cells = [
        name,
        f"{ours[failed].base:.0f}",
        _cell(ours[failed]),
        _cell(chance[failed]),
        f"{ours[broken].base:.0f}",
        _cell(ours[broken]),
        _cell(chance[broken]),
        f"{100 * energy.mean / energy.base:+.2f} %",
    ]
    return f"| {' | '.join(cells)} |"


def _cell(difference: Difference) -> str:
    return f"{difference.mean:+.0f} [{difference.low:+.0f}, {difference.high:+.0f}]"


def write_table(readme: Path, date: str, text: str) -> None:
    """Put the figures between their marks and leave the rest alone."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    figures = f"{BEGIN}\n\n`python -m benchmarks.benefit.run`, {date}:\n\n{text}\n\n{END}"
    readme.write_text(f"{before}{figures}{after}", encoding="utf-8")
