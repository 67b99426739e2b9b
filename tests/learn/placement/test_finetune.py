# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on what a scheduler recorded: frozen, repeatable, and promoted only for cause."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pilothouse.cli import main
from pilothouse.errors import ArtifactBroken, InvalidSetting
from pilothouse.journal import Ingested, Journal, Run
from pilothouse.learn.placement import recorded, rewards
from pilothouse.learn.placement.chooser import Chooser, heuristic
from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.finetune import FineTuned, fine_tune
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.recorded import Recorded
from pilothouse.learn.placement.rewards import worth
from pilothouse.learn.placement.trainer import THESIS
from pilothouse.policy import shipped
from pilothouse.testing.placement import random_policy

pytestmark = pytest.mark.timeout(600)
STEPS = 60


def a_record(features: np.ndarray, node: int) -> dict[str, Any]:
    """One bind, as the plugin reports it: the chosen node first, then the best others."""
    rows = [
        {"node": f"worker-{k}", "q": 0.0, "score": 0, "features": [float(x) for x in features[k]]}
        for k in range(len(features))
    ]
    others = [row for k, row in enumerate(rows) if k != node]
    return {"pod": "p", "path": "scored", "chosen": rows[node], "alternatives": others}


def a_journal(path: Path, chooser: Chooser, *, courses: int = 5) -> list[float]:
    """Binds of a scheduler that chooses so, in a journal; what each was worth comes back."""
    reward = rewards.named("nearby")
    family = Family(nodes=(3, 3), steps=STEPS, load_percent=(20, 40), unknown=0.0)
    values = []
    with Journal.open(path) as journal:
        run = Run(run_id="x", cluster="c", scenario="placements", seed=0, version="0")
        journal.begin(run)
        for seed in range(courses):
            fleet = Fleet(draw(family, seed=seed, count=1))
            for _ in range(STEPS):
                choice = chooser.choose(fleet)
                item = a_record(fleet.features()[0], int(choice[0]))
                step = fleet.place(choice)
                if step.bound[0] and step.placed.feasible[0].all():
                    values.append(float(worth(reward, step.placed)[0][0]))
                    content = {"kind": "placements", "placements": [item, "not a record"]}
                    journal.append(Ingested(source="scheduler", content=content))
    return values


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "placements.db"
    a_journal(path, heuristic("random"))
    return path


@pytest.fixture(scope="module")
def binds(journal: Path) -> Recorded:
    return recorded.from_journal(journal)


def test_a_record_tells_what_each_of_its_nodes_was_worth(tmp_path: Path) -> None:
    values = a_journal(tmp_path / "one.db", heuristic("random"), courses=2)
    binds = recorded.from_journal(tmp_path / "one.db")

    found = binds.worth(rewards.named("nearby"))[np.arange(binds.count), binds.choice]

    assert binds.count == len(values) > 60
    np.testing.assert_allclose(found, values, atol=2e-3)


def test_a_frozen_set_is_the_same_again_and_a_changed_one_is_refused(
    binds: Recorded, tmp_path: Path
) -> None:
    digest = recorded.freeze(binds, tmp_path / "recorded.npz")
    assert recorded.thaw(tmp_path / "recorded.npz").digest == digest

    other = binds.rows(slice(None))
    other.nodes[0, 0, 0] += 1
    arrays = {name: getattr(other, name) for name in Recorded.__slots__}
    head = np.array(json.dumps({"features": recorded.FEATURES, "digest": digest}))
    np.savez(tmp_path / "changed.npz", **arrays, head=head)
    other.nodes[0, 0, 0] -= 1
    with pytest.raises(ArtifactBroken, match="not what was frozen"):
        recorded.thaw(tmp_path / "changed.npz")


def tuned(binds: Recorded, start: Any, out: Path) -> FineTuned:
    reward = rewards.named("nearby")
    return fine_tune("el-rl", THESIS, reward, binds, start=start, seed=1, out=out)


def test_a_poor_policy_improves_and_is_promoted(binds: Recorded, tmp_path: Path) -> None:
    start = random_policy(tmp_path / "start", seed=5)
    made = tuned(binds, start, tmp_path / "out")

    assert made.promoted, made.why
    assert made.after.reward > made.before.reward
    assert made.stem == tmp_path / "out" / "el-rl"
    assert tuned(binds, start, tmp_path / "again").digest == made.digest
    first, second = (tmp_path / f / "el-rl.safetensors" for f in ("out", "again"))
    assert first.read_bytes() == second.read_bytes(), "a replay gives the same weights"


def test_a_policy_that_cannot_be_improved_stays(binds: Recorded, tmp_path: Path) -> None:
    only = np.arange(binds.valid.shape[1]) == binds.choice[:, None]
    made = tuned(replace(binds, valid=only), shipped("el-rl"), tmp_path)  # nothing to choose from

    assert not made.promoted
    assert made.stem == tmp_path / "el-rl-candidate"
    assert not (tmp_path / "el-rl.json").exists()


def test_command_fine_tunes_and_says_whether_it_promoted(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "placement", "--policy", "el-rl", "--from-journal", str(journal)]
    assert main([*words, "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (tmp_path / "el-rl.json").exists() == said["promoted"]
    assert (tmp_path / "el-rl-candidate.json").exists() != said["promoted"]

    words[-1] = str(tmp_path / "recorded.npz")
    assert main([*words, "--out", str(tmp_path / "again")]) == 0
    verdict = "Promoted" if said["promoted"] else "Not promoted"
    assert verdict in capsys.readouterr().out


def test_a_record_of_disk_is_not_taken_for_memory(tmp_path: Path) -> None:
    path = tmp_path / "placements.db"
    item = a_record(np.ones((2, len(recorded.FEATURES))), 0)
    batch = [item, item | {"beside_cpu": "memory"}, item | {"beside_cpu": "disk"}]
    with Journal.open(path) as journal:
        run = Run(run_id="x", cluster="c", scenario="placements", seed=0, version="0")
        journal.begin(run)
        content = {"kind": "placements", "placements": batch}
        journal.append(Ingested(source="scheduler", content=content))

    assert recorded.from_journal(path, fewest=1).count == 2


def test_too_few_binds_are_refused(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "empty.db") as journal:
        run = Run(run_id="x", cluster="c", scenario="placements", seed=0, version="0")
        journal.begin(run)
    with pytest.raises(InvalidSetting, match="0 placements"):
        recorded.from_journal(tmp_path / "empty.db")
