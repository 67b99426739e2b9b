# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on what a scheduler recorded: frozen, repeatable, and promoted only for cause."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pilothouse.cli import main
from pilothouse.errors import ArtifactBroken, InvalidSetting
from pilothouse.journal import Ingested, Journal, Run
from pilothouse.learn.placement import finetune, recorded, rewards
from pilothouse.learn.placement.chooser import Chooser, heuristic
from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.finetune import Evaluation, FineTuned, Rival, fine_tune
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.intervals import t95
from pilothouse.learn.placement.recorded import Recorded
from pilothouse.learn.placement.rewards import worth
from pilothouse.learn.placement.trainer import THESIS
from pilothouse.policy import Policy, artifact, choose, read, safetensors, shipped
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


def put_in_use(policy: Policy, out: Path, name: str = "el-rl") -> bytes:
    """This policy where promoting would overwrite it; its weights come back."""
    out.mkdir(parents=True, exist_ok=True)
    artifact.write(out / name, policy.card, safetensors.decode(policy.weights, name))
    return policy.weights


def test_what_is_better_than_its_beginning_only_does_not_replace_what_is_in_use(
    binds: Recorded, tmp_path: Path
) -> None:
    weights = put_in_use(shipped("el-rl"), tmp_path / "out")
    made = tuned(binds, random_policy(tmp_path / "start", seed=5), tmp_path / "out")

    start, used = made.rivals
    assert start.least_gain > 0, "it did improve, and would be promoted where nothing is in use"
    assert used.version == shipped("el-rl").version
    assert used.least_gain < 0
    assert not made.promoted
    assert "the policy in use" in made.why
    assert used.version in made.why
    assert made.stem == tmp_path / "out" / "el-rl-candidate"
    assert (tmp_path / "out" / "el-rl.safetensors").read_bytes() == weights
    told = read(made.stem).card.measured["fine-tuned"]
    assert set(told["gain"]) == {start.version, used.version}


def test_what_beats_its_beginning_and_what_is_in_use_replaces_it(
    binds: Recorded, tmp_path: Path
) -> None:
    put_in_use(random_policy(tmp_path / "worse", seed=7), tmp_path / "out")
    made = tuned(binds, random_policy(tmp_path / "start", seed=5), tmp_path / "out")

    assert made.promoted, made.why
    assert [rival.least_gain > 0 for rival in made.rivals] == [True, True]
    assert read(tmp_path / "out" / "el-rl").card.measured["fine-tuned"]["promoted"] is True


def test_going_on_from_what_is_in_use_is_compared_with_it_once(
    binds: Recorded, tmp_path: Path
) -> None:
    start = random_policy(tmp_path / "start", seed=5)
    put_in_use(start, tmp_path / "out")

    assert [r.version for r in tuned(binds, start, tmp_path / "out").rivals] == [start.version]


def a_rival(role: str, *, least: float, kept: tuple[str, ...] = ()) -> Rival:
    before = Evaluation(reward=-0.5, kept=kept)
    return Rival(role=role, version="v", evaluation=before, gain=0.1, least_gain=least)


@pytest.mark.parametrize(
    ("rivals", "promoted", "word"),
    [
        ([a_rival("start", least=0.01)], True, "sure gain"),
        ([a_rival("start", least=-0.01)], False, "no sure gain"),  # the mean rose: by chance, maybe
        ([a_rival("start", least=float("nan"))], False, "no sure gain"),
        ([a_rival("start", least=0.01), a_rival("used", least=-0.01)], False, "over used"),
        ([a_rival("start", least=0.01, kept=("within soft",))], False, "within soft"),
        (
            [a_rival("start", least=0.01), a_rival("used", least=0.01, kept=("within hard",))],
            False,
            "used keeps fails now: within hard",
        ),
        ([a_rival("start", least=0.01, kept=("followed",))], True, "sure gain"),
    ],
)
def test_only_a_sure_gain_over_every_rival_is_promoted(
    rivals: list[Rival], promoted: bool, word: str
) -> None:
    after = Evaluation(reward=-0.4, kept=("followed",))

    found, why = finetune._verdict(rivals, after)

    assert (found, word in why) == (promoted, True), why


def test_a_gain_s_bound_is_paired_over_stretches_of_binds(binds: Recorded, tmp_path: Path) -> None:
    reward, held_out = rewards.named("nearby"), binds.split()[1]
    before, after = random_policy(tmp_path / "a", seed=5), shipped("el-rl")
    found = finetune._Judge("el-rl", held_out, reward).rival("start", before, after.network)

    worth_of = held_out.worth(reward)
    rows = [
        worth_of[
            np.arange(held_out.count),
            choose(p.network(held_out.features, held_out.valid), held_out.valid),
        ]
        for p in (before, after)
    ]
    gains = rows[1] - rows[0]
    means = np.asarray([part.mean() for part in np.array_split(gains, finetune.STRETCHES)])
    half = t95(len(means)) * means.std(ddof=1) / len(means) ** 0.5
    assert found.gain == pytest.approx(gains.mean())
    assert found.least_gain == pytest.approx(gains.mean() - half)
    assert found.evaluation.reward == pytest.approx(rows[0].mean())


def test_one_s_own_policy_goes_on_from_where_it_is(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", "placement", "--policy", "mine", "--reward", "nearby"]
    words += ["--from-journal", str(journal), "--out", str(out), "--json"]
    assert main(words) == 2
    assert "--start FILE" in capsys.readouterr().err

    put_in_use(random_policy(tmp_path / "start", seed=5), out, "mine")
    before = read(out / "mine").version
    assert main(words) == 0
    (rival,) = json.loads(capsys.readouterr().out)["rivals"]
    assert rival["version"] == before


def test_a_policy_in_use_that_sees_something_else_is_not_overwritten(tmp_path: Path) -> None:
    own = random_policy(tmp_path / "start", seed=5)
    features = {
        name: tuple(f.replace("memory", "disk") for f in getattr(own.card, name))
        for name in ("node_features", "pod_features")
    }
    card = msgspec.structs.replace(own.card, **features)
    artifact.write(tmp_path / "el-rl", card, safetensors.decode(own.weights, "el-rl"))

    assert finetune.in_use("el-rl", tmp_path, sees="disk") is not None
    with pytest.raises(InvalidSetting, match="another --out"):
        finetune.in_use("el-rl", tmp_path, sees="memory")
    assert finetune.in_use("lb", tmp_path, sees="memory") is None


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
