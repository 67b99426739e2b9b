# SPDX-License-Identifier: Apache-2.0
"""A forecaster trained on a trace drives the loop on that trace, and the explanation quotes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pilothouse.cli import main
from pilothouse.domain import ActionKind, Proposal, Ruling
from pilothouse.journal import JournalReader
from pilothouse.learn.traces.synthetic import Recipe, write
from pilothouse.learn.train import forecaster

pytest.importorskip("xgboost")

SAMPLE = "borg2019_sample_cells_1_6.parquet"
CYCLES = "48"  # twelve minutes of the cluster


def sample() -> Path:
    """The public 2019 sample: where PILOTHOUSE_DATA says, or in a folder beside the checkout."""
    told = os.environ.get("PILOTHOUSE_DATA")
    beside = Path(__file__).parents[3].glob(f"*/data/{SAMPLE}")
    found = [Path(told) / SAMPLE] if told else sorted(beside)
    if not found or not found[0].is_file():
        pytest.skip(
            f"{SAMPLE} is not here, so the loop was not driven by the public trace. "
            "Set PILOTHOUSE_DATA to the folder that has it."
        )
    return found[0]


def drive(
    source: str, raw: Path, speed: str, journal: Path
) -> tuple[dict, list[tuple[str, Proposal]]]:
    """Import, train, replay; the forecaster's thresholds and every winner that quotes it."""
    assert main(["traces", "import", source, str(raw)]) == 0
    assert main(["traces", "features", source]) == 0
    assert main(["train", "risk", "--dataset", f"{source}-features", "--name", "mine"]) == 0
    run = ["up", "--trace", source, "--speed", speed, "--forecaster", "mine", "--cycles", CYCLES]
    assert main([*run, "--interval", "0", "--no-serve", "--journal", str(journal)]) == 0
    file = Path(os.environ["PILOTHOUSE_HOME"]) / "models" / "mine" / "forecaster.json"
    quoted = [
        (decision.id, proposal)
        for decision in (recorded.cycle.decision for recorded in JournalReader(journal).cycles())
        for proposal, verdict in zip(decision.proposals, decision.verdicts, strict=True)
        if "says mine/1" in proposal.reason and proposal.kind is not ActionKind.NOOP
        if verdict.ruling is Ruling.CHOSEN
    ]
    return json.loads(file.read_bytes())["forecaster"], quoted


def holds(made: dict, quoted: list[tuple[str, Proposal]], journal: Path, capsys) -> None:
    thresholds, card = made["thresholds"], made["card"]["pods"]
    assert thresholds["workload_horizon_seconds"] == 3600
    assert 0.01 <= thresholds["replicate_risk"] < 1
    assert card["alert_share"] <= 0.1
    assert quoted, "the forecaster's risk never led to an action"
    decision, proposal = quoted[0]
    assert proposal.kind is ActionKind.REPLICATE
    assert proposal.score >= thresholds["replicate_risk"]
    assert "within 60 min" in proposal.reason
    capsys.readouterr()
    assert main(["explain", decision, "--journal", str(journal)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert proposal.target.short in told
    assert "says mine/1" in told
    assert proposal.reason.split(": ")[0] in told  # the forecaster, its risk and its threshold
    assert main(["replay", str(journal)]) == 0


def test_made_up_trace_drives_the_loop_and_is_quoted(home, tmp_path, capsys) -> None:
    raw, journal = tmp_path / "raw", tmp_path / "run.db"
    write(raw, Recipe(jobs=60, machines=8, hours=8, seed=3, leaky_share=0.3))
    made, quoted = drive("google-2019", raw, "30", journal)

    holds(made, quoted, journal, capsys)


def test_public_2019_sample_drives_the_loop_and_is_quoted(home, tmp_path, capsys) -> None:
    journal = tmp_path / "run.db"
    made, quoted = drive("google-2019-sample", sample(), "8", journal)

    holds(made, quoted, journal, capsys)


def test_thresholds_keep_to_the_alert_budget_and_rise_with_what_the_forecaster_says() -> None:
    rare = np.linspace(0.0, 0.05, 1000)
    failed = (rare > 0.049).astype(np.float32)
    low, at_budget = forecaster._bridging(rare, failed)
    high, _ = forecaster._bridging(10 * rare, failed)
    flat, _ = forecaster._bridging(np.full(1000, 0.3), failed)

    assert low["replicate_risk"] == pytest.approx(0.0455, abs=0.001)
    assert high["replicate_risk"] == pytest.approx(0.4505, abs=0.001)
    assert at_budget["alert_share"] <= 0.1
    assert at_budget["alert_recall"] == 1.0
    assert flat["replicate_risk"] >= 0.3
    for level in (low["migrate_risk"], low["throttle_risk"]):
        assert 0 < level < low["replicate_risk"]
        assert level == round(level, 3)
