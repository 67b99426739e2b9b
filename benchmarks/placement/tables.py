# SPDX-License-Identifier: Apache-2.0
"""The tables of results.json, and which of its lines fail."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from benchmarks.placement.plays import SIZES, clusters_of
from pilothouse.learn.placement.judging import KINDS
from pilothouse.policy import shipped

GENERALIZES = 0.05
MOST_RANDOM = 0.02
CONTROLS = ("controls", "shuffled")
NOT_SETS = (*CONTROLS, "rules")
FIVE = "5 seeds"
Rows = list[dict[str, Any]]


def own_weights(kind: str) -> str:
    return shipped(kind).card.weights_sha256[:12]


def show(results: dict[str, Any]) -> int:
    """Print the tables; 1 when a median, a shipped policy's line or a control fails."""
    found = results["policies"]
    failed = 0
    for name in sorted({key for kept in found.values() for key in kept}.difference(NOT_SETS)):
        print(f"{name}: median (worst, shipped); below, the same figures of rules\n")
        print("| line | bound | | " + " | ".join(f"{size} nodes" for size in SIZES) + " |")
        print("|---|--:|---|" + "--:|" * len(SIZES))
        sets = {kind: kept for kind, kept in found.items() if name in kept}
        for kind, kept in sets.items():
            rules = kept.get("rules", {}).get("lines", [])
            failed += _show_lines(kind, kept[name]["lines"], rules)
        failed += sum(_show_beyond(kind, kept[name]["beyond"]) for kind, kept in sets.items())
    for kind, kept in found.items():
        failed += _show_controls(kind, kept.get("controls", {}) | kept.get("shuffled", {}))
    for part in [key for key in results if key not in ("simulated", "policies")]:
        print(f"{part}: {text_of(results[part])}")
    print(f"{failed} lines fail")
    return 1 if failed else 0


def missing(results: dict[str, Any]) -> list[str]:
    """What is promised and was not measured: sizes of the five seeds, on as many clusters as are
    played now, and controls.
    """
    found = []
    for kind in KINDS:
        kept = results["policies"].get(kind, {})
        have: dict[str, set[str]] = {size: set() for size in SIZES}
        for row in kept.get(FIVE, {}).get("lines", []):
            if row["clusters"] == clusters_of(kind, row["nodes"]):
                have[row["nodes"]].add(row["weights"])
        found += [
            f"{kind}: {size} nodes were played by {len(own)} of five seeds"
            for size, own in have.items()
            if len(own) < 5
        ]
        found += [f"{kind}: {part} were not measured" for part in CONTROLS if not kept.get(part)]
    return found


def _show_lines(kind: str, rows: Rows, rules: Rows) -> int:
    """One row of the table per line: median (worst, shipped) of the networks, then the rules'."""
    failed = 0
    for what in dict.fromkeys(row["what"] for row in rows):
        own = [row for row in rows if row["what"] == what]
        networks = len({row["weights"] for row in own})
        at_size = [[row for row in own if row["nodes"] == size] for size in SIZES]
        cells = [_cell(kind, at, networks) for at in at_size]
        failed += sum(cell.endswith("FAILS") for cell in cells)
        who = f"{networks} networks" if networks > 1 else "learned"
        print(f"| {kind}: {what} | {own[0]['bound']} | {who} | " + " | ".join(cells) + " |")
        same = [row for row in rules if row["what"] == what]
        for rule in dict.fromkeys(row["rule"] for row in same):
            at = {row["nodes"]: row["value"] for row in same if row["rule"] == rule}
            told = [f"{at[size]:.3f}" if size in at else "" for size in SIZES]
            print(f"| | | `{rule}` | " + " | ".join(told) + " |")
    return failed


def _cell(kind: str, at: Rows, networks: int) -> str:
    """The networks' figures at one size; how many there are, where some were not played."""
    if not at:
        return ""
    line = at[0]
    values = sorted((row["value"] for row in at), reverse=line["at_least"])
    middle, worst = median(values), values[-1]
    bad = middle < line["bound"] if line["at_least"] else middle > line["bound"]
    mine = [row for row in at if row["weights"] == own_weights(kind)]
    bad = bad or any(not row["holds"] for row in mine)
    told = f", {mine[0]['value']:.3f}" if mine and len(at) > 1 else ""
    told += f"; {len(at)} of {networks}" if len(at) < networks else ""
    return f"{middle:.3f} ({worst:.3f}{told}){' FAILS' if bad else ''}"


def _show_beyond(kind: str, rows: Rows) -> int:
    """Each line beyond the sizes trained on: the median and the worst change."""
    failed = 0
    for what, size in dict.fromkeys((row["what"], row["nodes"]) for row in rows):
        at = [row for row in rows if (row["what"], row["nodes"]) == (what, size)]
        if "worse" not in at[0]:
            continue  # the table says whether it holds
        worse = [row["worse"] for row in at]
        bad = median(worse) > GENERALIZES
        failed += bad
        print(
            f"{kind} at {size} nodes: {what}: {100 * median(worse):.1f} % worse than on the sizes "
            f"trained on, worst {100 * max(worse):.1f} % "
            f"({sum(row['holds'] for row in at)} of {len(at)} hold){' FAILS' if bad else ''}"
        )
    return failed


def _show_controls(kind: str, told: dict[str, Any]) -> int:
    """One per control that fails: who should pass does not, or who should not does."""
    if not told:
        return 0
    print(f"{kind}: controls {json.dumps(told)}")
    many = told.get("random networks that pass", 0) > MOST_RANDOM * told.get("random networks", 0)
    return (
        int(many)
        + int(told.get("trained on shuffled rewards and pass", 0) > 0)
        + int(bool(told.get("rules of one feature that pass")))
        + int(2 * told.get("policies that pass", 0) < told.get("policies", 0))
    )


def text_of(value: Any, depth: int = 0) -> str:
    """JSON with a row of a table on a line."""
    if not isinstance(value, dict | list) or not value or _is_flat(value):
        return json.dumps(value)
    pad = "\n" + " " * (depth + 1)
    if isinstance(value, list):
        inner = [text_of(one, depth + 1) for one in value]
        return "[" + pad + f",{pad}".join(inner) + "\n" + " " * depth + "]"
    inner = [f"{json.dumps(key)}: {text_of(one, depth + 1)}" for key, one in value.items()]
    return "{" + pad + f",{pad}".join(inner) + "\n" + " " * depth + "}"


def _is_flat(value: Any) -> bool:
    """Whether it fits a line: words and numbers, and lists of them."""
    inside = list(value.values() if isinstance(value, dict) else value)
    for one in inside:
        inside += one if isinstance(one, list) else []
    return not any(isinstance(one, dict) for one in inside)
