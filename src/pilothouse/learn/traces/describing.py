# SPDX-License-Identifier: Apache-2.0
"""What a dataset holds, in a few small tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from pilothouse.learn import artifacts
from pilothouse.learn.traces.importing import table

Tables = dict[str, list[tuple[Any, ...]]]


def describe(dataset: Path) -> Tables:
    """Tables by title; the first row of each is its header."""
    manifest = artifacts.load(dataset)
    if manifest.kind == "features":
        return _of_features(dataset)
    out: Tables = {"rows": [("table", "rows"), *manifest.facts["rows"].items()]}
    for name in ("events", "jobs"):
        if name in manifest.facts["rows"]:
            counts = (
                table(dataset, name).group_by("cell", "event").len().sort("cell", "event").collect()
            )
            out[name] = [("cell", "event", "rows"), *counts.iter_rows()]
    if "usage" in manifest.facts["rows"]:
        spans = (
            table(dataset, "usage")
            .group_by("cell")
            .agg(
                windows=pl.len(),
                jobs=pl.col("job").n_unique(),
                hours=((pl.col("end_us").max() - pl.col("start_us").min()) / 3.6e9).round(1),
            )
            .sort("cell")
            .collect()
        )
        out["usage"] = [tuple(spans.columns), *spans.iter_rows()]
    return out


def _of_features(features: Path) -> Tables:
    from pilothouse.learn.dataset.windows import load

    rows = load(features)
    out: Tables = {}
    for column in (c for c in rows.columns if c.startswith("label_")):
        known = rows.filter(pl.col(column) >= 0)
        rates = (
            known.group_by("cell")
            .agg(
                rows=pl.len(),
                positives=pl.col(column).sum(),
                share=pl.col(column).mean().round(5),
                jobs_failing=pl.col("job").filter(pl.col(column) == 1).n_unique(),
            )
            .sort("cell")
        )
        title = f"failure within {int(column.removeprefix('label_')) // 60} min"
        out[title] = [tuple(rates.columns), *rates.iter_rows()]
    return out
