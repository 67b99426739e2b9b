# SPDX-License-Identifier: Apache-2.0
"""Which protocol fits which dataset, and the report that comes out of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pilothouse.home import folder
from pilothouse.learn import artifacts
from pilothouse.learn.evaluate import cellrisk, jobrisk, leaks, noderisk, report
from pilothouse.learn.evaluate import demand as demand_track

Advance = Callable[[], None]


def risk(
    dataset: str, *, horizon_seconds: int, leak_check: bool, progress: Advance
) -> tuple[dict[str, Any], Path]:
    """Features are judged by leaving out cells; job events at submission, by time."""
    source = artifacts.find(dataset, "processed")
    manifest = artifacts.load(source)
    if manifest.kind == "features":
        figures = cellrisk.evaluate(
            source, horizon_seconds=horizon_seconds, progress=lambda what: progress()
        )
        note = (
            "Chosen by leaving out cells inside the training cells. In the public 2019 sample "
            "every collection has one kind of terminal event, so the job's own past is "
            "unnaturally telling; the figures without it are listed as usage only."
        )
        if leak_check:
            figures["leak_check"] = leaks.check(source, horizon_seconds=horizon_seconds).to_dict()
    else:
        figures = jobrisk.evaluate(source)
        note = "History of user and logical name at submission; nothing of the job's own run."
        if leak_check:
            figures["leak_check"] = leaks.check_jobs(source).to_dict()
    card = {
        "What": f"Failure risk on {manifest.track}.",
        "How it was judged": note,
        "Not for": "Absolute rates on another cluster; calibrate on its own data.",
    }
    target = folder("reports") / f"risk-{source.name}"
    report.write(
        target,
        f"Failure risk, {source.name}",
        figures,
        inputs=manifest.files,
        settings={"horizon_seconds": horizon_seconds},
        card=card,
    )
    return figures, target / "report.html"


def nodes(dataset: str, *, progress: Advance) -> tuple[dict[str, Any], Path]:
    """Machine removals."""
    source = artifacts.find(dataset, "processed")
    manifest = artifacts.load(source)
    figures = noderisk.removals(source)
    progress()
    target = folder("reports") / f"nodes-{source.name}"
    report.write(
        target,
        f"Node risk, {source.name}",
        figures,
        inputs=manifest.files,
        settings={},
        card={
            "What": "Machines removed within the hour.",
            "How it was judged": "Split by time with an embargo of one hour, at its own base rate.",
            "Not for": "Telling a planned removal from a failure: the trace does not say which.",
        },
    )
    return figures, target / "report.html"


def demand(dataset: str, *, what: str, progress: Advance) -> tuple[dict[str, Any], Path]:
    """Quantiles of machine usage."""
    source = artifacts.find(dataset, "processed")
    manifest = artifacts.load(source)
    figures = demand_track.evaluate(source, what=what, progress=lambda step: progress())
    for quantile, part in figures["quantiles"].items():
        figures[f"{quantile} lower by"] = part["lower_by"]
        figures[f"{quantile} coverage"] = part["coverage"]
        figures[f"{quantile} best rival"] = part["best_rival"]
        shares = sorted(part["machines_covered"])
        figures[f"{quantile} coverage by machine"] = {
            "least": shares[0],
            "median": shares[len(shares) // 2],
            "most": shares[-1],
        }
    figures["curves"] = {
        f"Pinball loss of {quantile}, lower is better": {
            "forecaster": part["pinball"],
            **part["rivals"],
        }
        for quantile, part in figures["quantiles"].items()
    }
    target = folder("reports") / f"demand-{what}-{source.name}"
    report.write(
        target,
        f"Demand, {what}, {source.name}",
        figures,
        inputs=manifest.files,
        settings={"what": what},
        card={
            "What": f"Quantiles of {what} per machine, 5 to 60 minutes ahead.",
            "How it was judged": "Unseen machines, later in time; rivals widened by their own "
            "training residuals.",
        },
    )
    return figures, target / "report.html"
