# SPDX-License-Identifier: Apache-2.0
"""The suggestions server: scores, reasons, publishing, the table and the extender protocol."""

from __future__ import annotations

import base64
import itertools
import json
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from pilothouse import policy
from pilothouse.policy import FEATURES
from pilothouse.policy.features import seeing
from pilothouse.policy.machines import Machine
from pilothouse.policy.network import Floats, Network, pool
from pilothouse.policy.reasons import KNOBS, Flip
from pilothouse.scorer import app as app_module
from pilothouse.scorer.app import Parts, create_app
from pilothouse.scorer.board import LATENCY_SECONDS, Board, Latency, PolicySource
from pilothouse.scorer.placements import Placements
from pilothouse.scorer.suggest import STATES, WORDS, flip_sentence
from pilothouse.testing.placement import FOLDER

TOKEN = "a-token-for-the-tests"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


class FixedView:
    def __init__(self, *machines: Machine) -> None:
        self.rows = list(machines)

    def machines(self) -> list[Machine]:
        return self.rows

    def age_seconds(self) -> float:
        return 0.5


def a_machine(name: str, **changes: Any) -> Machine:
    made = Machine(
        name=name,
        address="",
        ready=True,
        pods=3,
        counted_pods=2,
        pod_capacity=110,
        cpu_requested=1000,
        cpu_allocatable=4000,
        memory_requested=1024,
        memory_allocatable=8192,
        idle_power_share=float("nan"),
    )
    return replace(made, **changes)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scorer:
    """The app in front of three nodes, with a clock that tests move."""

    def __init__(self, tmp_path: Path, **changes: Any) -> None:
        self.clock = Clock()
        self.view = FixedView(
            a_machine("near"),
            a_machine("far", counted_pods=0, pods=0, cpu_requested=0),
            a_machine("full", cpu_requested=4000),
        )
        self.board = Board(view=self.view, clock=self.clock)
        self.board.load(PolicySource(str(FOLDER / "fixture")))
        for node, ms in (("near", 5.0), ("far", 80.0)):
            self.measure(node, ms)
        self.parts = Parts(
            board=self.board, placements=Placements(None, cluster="test"), token=TOKEN, **changes
        )
        self.app = create_app(self.parts)

    def measure(self, node: str, ms: float, user: str = "") -> None:
        made = Latency(milliseconds=ms, spread_ms=1.0, at=self.clock())
        self.board.measured(user, node, made)

    def call(self, method: str, path: str, **arguments: Any) -> httpx2.Response:
        import asyncio

        async def ask() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://127.0.0.1"
            ) as client:
                return await client.request(method, path, **arguments)

        return asyncio.run(ask())

    def suggest(self, **pod: Any) -> dict[str, Any]:
        answer = self.call("POST", "/v1/suggestions", json={"pod": pod})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def scorer(tmp_path: Path) -> Scorer:
    return Scorer(tmp_path)


def test_suggestions_are_the_policys_scores_with_the_features_used(scorer: Scorer) -> None:
    said = scorer.suggest(cpu_millicores=100, memory_mib=64, soft_limit_ms=20)
    rows = {row["node"]: row for row in said["nodes"]}

    assert said["policy"].startswith("fixture-")
    assert rows[said["chosen"]]["score"] == 100
    assert rows["full"] == rows["full"] | {"score": 0, "feasible": False}
    assert rows["near"]["features"]["latency_ms"] == 5.0
    assert rows["near"]["features"]["latency_over_soft"] == -0.75
    assert list(rows["near"]["features"]) == list(FEATURES)
    assert set(rows["near"]["contributions"]) == {"load", "energy", "latency"}


AFTER = {"cpu_requested_share": "cpu_after_share", "memory_requested_share": "memory_after_share"}
LATENCY = ("latency_ms", "latency_known", "latency_over_soft", "latency_over_hard")
SPAN = {"latency_ms": 100.0}
SHARES = ("cpu_requested_share", "memory_requested_share", "pods_share", "idle_power_share")


def with_other(features: dict[str, float], name: str, value: float) -> dict[str, float]:
    """A node's features by hand, with another value of one and what follows from it."""
    made = features | {name: value}
    if name in AFTER:
        made[AFTER[name]] += value - features[name]
    if name == "latency_known":
        made |= dict.fromkeys(LATENCY, 0.0)
    for limit in ("soft", "hard"):
        if name == "latency_ms" and features[f"has_{limit}"]:
            allowed = features[f"{limit}_limit_ms"]
            made[f"latency_over_{limit}"] = max(-1.0, min((value - allowed) / allowed, 1.0))
    return made


def others_of(features: dict[str, float]) -> dict[str, list[float]]:
    """Values that each feature which can be turned by itself could have had."""
    found = {name: [step / 20 for step in range(21)] for name in SHARES}
    if features["latency_known"]:
        found |= {"latency_ms": [5.0 * step for step in range(21)], "latency_known": [0.0]}
    return found | {"active": [0.0, 1.0]}


def judged(network: Network, pooled: Floats, features: dict[str, float]) -> float:
    row = np.float32([list(features.values())])
    return float(network.judge(network.encode(row), pooled)[0])


def test_what_would_have_flipped_a_choice_really_flips_it_and_nothing_is_left_out(
    scorer: Scorer,
) -> None:
    network = policy.read(FOLDER / "fixture").network
    checked: Counter[str] = Counter()
    for cpu, soft in itertools.product((0, 100, 1000, 2500), (None, 10, 20, 60, 100)):
        said = scorer.suggest(cpu_millicores=cpu, memory_mib=64, soft_limit_ms=soft)
        rows = [np.float32(list(row["features"].values())) for row in said["nodes"]]
        encoded = network.encode(np.stack(rows))
        pooled = pool(encoded, np.ones(len(rows), np.bool_))
        q = network.judge(encoded, pooled)
        feasible = [row["feasible"] for row in said["nodes"]]
        for place, row in enumerate(said["nodes"]):
            assert row["flip"] == (row["flips"][0] if row["flips"] else None)
            assert bool(row["no_flip"]) == (not row["flips"])
            if not row["feasible"]:
                assert "no candidate" in row["no_flip"]
                continue
            rival = max(v for at, v in enumerate(q) if feasible[at] and at != place)
            assert (q[place] > rival) == (row["node"] == said["chosen"])
            wins = row["node"] == said["chosen"]
            named = {one["feature"]: one for one in row["flips"]}
            for name, one in named.items():
                after = judged(network, pooled, with_other(row["features"], name, one["then"]))
                assert (after > rival) != wins, one
                assert one["now"] == pytest.approx(row["features"][name], abs=1e-6)
                assert row["node"] in one["sentence"]
            for name, values in others_of(row["features"]).items():
                tried = [with_other(row["features"], name, value) for value in values]
                after_all = [judged(network, pooled, one) > rival for one in tried]
                assert name in named or set(after_all) == {wins}, name
            far = [abs(one["then"] - one["now"]) / SPAN.get(name, 1) for name, one in named.items()]
            assert np.diff(far).min(initial=0) > -1e-5, "the nearest comes first"
            checked.update(list(named))
    assert checked["latency_ms"] >= 25, "few cases say anything, so few were checked"
    assert len(checked) >= 6, checked


def test_every_node_of_a_large_cluster_is_told_what_would_have_flipped_it(scorer: Scorer) -> None:
    scorer.view.rows = [
        a_machine(f"n{i}", cpu_requested=i % 40 * 100, pods=i % 97) for i in range(1000)
    ]
    began = time.process_time()
    said = scorer.suggest(cpu_millicores=100, memory_mib=64)
    took = time.process_time() - began

    assert len(said["nodes"]) == 1000
    assert all(bool(row["flips"]) != bool(row["no_flip"]) for row in said["nodes"])
    assert sum(bool(row["flips"]) for row in said["nodes"]) > 500
    assert took < 3, f"{took:.1f} s of CPU"


@pytest.mark.parametrize("nodes", [3, 64])
def test_among_equal_nodes_the_chosen_one_is_not_told_how_to_be_chosen(
    scorer: Scorer, nodes: int
) -> None:
    scorer.view.rows = [a_machine(f"n{i}") for i in range(nodes)]

    said = scorer.suggest(cpu_millicores=100, memory_mib=64)
    rows = {row["node"]: row for row in said["nodes"]}
    chosen = rows.pop(said["chosen"])

    assert chosen["flips"], "a worse node would have lost to its equals"
    for flip in chosen["flips"]:
        assert f"{said['chosen']} would have been chosen" not in flip["sentence"]
    for name, row in rows.items():
        assert all(f"{name} would have been chosen" in one["sentence"] for one in row["flips"])


def test_a_node_without_a_rival_says_so(scorer: Scorer) -> None:
    scorer.view.rows = [a_machine("alone")]

    assert "only candidate" in scorer.suggest(cpu_millicores=100)["nodes"][0]["no_flip"]


@pytest.mark.parametrize(
    ("flip", "sentence"),
    [
        (Flip(feature="latency_ms", now=12, then=30), "at a latency of 30 ms on a (now 12 ms) b"),
        (Flip(feature="pods_share", now=0.1, then=0.5), "at a share of pods of 0.5 on a (now 0.1)"),
        (Flip(feature="active", now=0, then=1), "with a active (now idle) b"),
        (Flip(feature="latency_known", now=1, then=0), "with a of unknown latency (now of known"),
    ],
)
def test_a_flip_reads_as_a_sentence(flip: Flip, sentence: str) -> None:
    assert flip_sentence(flip, "a", "b would have been chosen").startswith(sentence)


def test_every_feature_that_can_be_turned_has_its_words() -> None:
    turned = tuple(knob.feature for knob in KNOBS)

    assert {*turned, *seeing(turned, "disk")} == set(WORDS) | set(STATES)


def test_candidates_may_be_named_or_brought_along(scorer: Scorer) -> None:
    body = {
        "pod": {"cpu_millicores": 100},
        "nodes": [
            {"name": "near"},
            {"name": "stranger"},
            {
                "name": "brought",
                "cpu_allocatable": 8000,
                "memory_allocatable": 100,
                "latency_ms": 1,
            },
        ],
    }
    said = scorer.call("POST", "/v1/suggestions", json=body).json()

    assert [row["node"] for row in said["nodes"]] == ["near", "brought"]
    assert said["unknown"] == ["stranger"]
    assert said["nodes"][1]["features"]["latency_ms"] == 1.0


def test_a_published_suggestion_overrides_the_policy_until_it_expires(scorer: Scorer) -> None:
    body = {"scores": {"far": 90, "near": 10}, "ttl_seconds": 30}
    answer = scorer.call("PUT", "/v1/suggestions/uid-1", json=body, headers=AUTHORIZED)
    assert answer.status_code == 204

    said = scorer.suggest(uid="uid-1")
    assert (said["chosen"], said["published"]) == ("far", True)
    assert not any(row["flips"] for row in said["nodes"]), "no feature of a node decided"
    assert {row["no_flip"] for row in said["nodes"] if row["feasible"]} == {
        "scores published for this pod decided, whatever the nodes are like"
    }
    table = scorer.call("GET", "/v1/table").json()
    assert table["suggestions"]["uid-1"]["scores"] == {"far": 90.0, "near": 10.0}
    assert scorer.suggest(uid="uid-2")["published"] is False
    scorer.clock.now += 31
    assert scorer.suggest(uid="uid-1")["published"] is False
    assert scorer.call("GET", "/v1/table").json()["suggestions"] == {}


@pytest.mark.parametrize(
    "scores", [{"nonesuch": 100.0}, {"full": 100.0}, {"near": 0.0, "far": 0.4}]
)
def test_a_suggestion_that_favors_no_candidate_leaves_the_choice_to_the_policy(
    scorer: Scorer, scores: dict[str, float]
) -> None:
    own = scorer.suggest(uid="uid-1", cpu_millicores=100)
    pod = a_pod() | {"metadata": {"name": "p", "namespace": "shop", "uid": "uid-1"}}
    asked = {"pod": pod, "nodenames": ["near", "far"]}
    ranks = scorer.call("POST", "/extender/prioritize", json=asked).json()

    body = {"scores": scores, "ttl_seconds": 60}
    scorer.call("PUT", "/v1/suggestions/uid-1", json=body, headers=AUTHORIZED).raise_for_status()
    assert scorer.suggest(uid="uid-1", cpu_millicores=100) == own
    assert scorer.call("POST", "/extender/prioritize", json=asked).json() == ranks

    body["scores"] = scores | {"far": 4.0, "near": 1.0}
    scorer.call("PUT", "/v1/suggestions/uid-1", json=body, headers=AUTHORIZED).raise_for_status()
    assert scorer.suggest(uid="uid-1", cpu_millicores=100)["chosen"] == "far"
    told = scorer.call("POST", "/extender/prioritize", json=asked).json()
    assert {one["host"]: one["score"] for one in told} == {"near": 0, "far": 10}


def test_few_are_explained_at_once_and_the_scheduler_gets_its_table_meanwhile(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, begun = threading.Event(), threading.Semaphore(0)
    right = app_module.suggest

    def slow(*given: Any) -> Any:
        begun.release()
        assert done.wait(30)
        return right(*given)

    monkeypatch.setattr(app_module, "suggest", slow)
    most = app_module.EXPLAINED_AT_ONCE
    with ThreadPoolExecutor(most) as pool:
        held = [pool.submit(scorer.suggest, cpu_millicores=100) for _ in range(most)]
        for _ in held:
            assert begun.acquire(timeout=30)
        refused = scorer.call("POST", "/v1/suggestions", json={"pod": {}})
        table = scorer.call("GET", "/v1/table")
        done.set()
        answers = [one.result(timeout=30) for one in held]

    assert refused.status_code == 429
    assert "Others are being answered" in refused.text
    assert table.status_code == 200
    assert all(answer["chosen"] for answer in answers)
    assert scorer.suggest(cpu_millicores=100)["chosen"], "places are given back"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": ""}])
def test_publishing_needs_the_token(scorer: Scorer, headers: dict[str, str]) -> None:
    for method, path, body in (
        ("PUT", "/v1/suggestions/uid", {"scores": {"near": 1}}),
        ("PUT", "/v1/avoid", {"nodes": {"near": 5}}),
        ("POST", "/v1/records", {"kind": "placements"}),
    ):
        assert scorer.call(method, path, json=body, headers=headers).status_code == 401


def test_nobody_may_publish_where_there_is_no_token(tmp_path: Path) -> None:
    scorer = Scorer(tmp_path)
    scorer.app = create_app(replace(scorer.parts, token=""))

    answer = scorer.call(
        "PUT",
        "/v1/suggestions/uid",
        json={"scores": {"near": 1}},
        headers={"Authorization": "Bearer "},
    )
    assert answer.status_code == 401


def test_avoided_nodes_are_not_chosen_while_others_remain(scorer: Scorer) -> None:
    chosen = scorer.suggest()["chosen"]
    scorer.call("PUT", "/v1/avoid", json={"nodes": {chosen: 5}}, headers=AUTHORIZED)

    assert scorer.suggest()["chosen"] not in (None, chosen)
    assert scorer.call("GET", "/v1/table").json()["avoid"] == [chosen]
    scorer.clock.now += 6
    assert scorer.suggest()["chosen"] == chosen


def test_the_table_carries_weights_only_to_who_lacks_them(scorer: Scorer) -> None:
    full = scorer.call("GET", "/v1/table").json()
    weights = base64.b64decode(full["policy"]["weights"])
    again = scorer.call("GET", "/v1/table", params={"policy": full["policy"]["version"]}).json()

    assert weights == (FOLDER / "fixture.safetensors").read_bytes()
    assert "weights" not in again["policy"]
    assert full["latency"] == {"": {"near": 5.0, "far": 80.0}}
    assert full["ttlSeconds"] == 10


def test_an_old_measurement_is_not_believed(scorer: Scorer) -> None:
    scorer.clock.now += LATENCY_SECONDS + 1
    scorer.measure("far", 7.0)

    assert scorer.call("GET", "/v1/table").json()["latency"][""] == {"far": 7.0}
    ages = {n["node"]: n["latency_ms"] for n in scorer.call("GET", "/v1/nodes").json()["nodes"]}
    assert ages == {"near": None, "far": 7.0, "full": None}


def test_a_pods_own_user_has_latencies_of_its_own(scorer: Scorer) -> None:
    scorer.measure("far", 1.0, user="10.1.1.1:80")
    said = scorer.suggest(user="10.1.1.1:80", soft_limit_ms=20)
    rows = {row["node"]: row["features"] for row in said["nodes"]}

    assert rows["far"]["latency_ms"] == 1.0
    assert rows["near"]["latency_known"] == 0.0


def a_pod(**annotations: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    return {
        "metadata": {"name": "p", "uid": "uid-p", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }


def test_the_extender_ranks_names_and_whole_nodes(scorer: Scorer) -> None:
    names = {"pod": a_pod(), "nodenames": ["near", "far", "stranger"]}
    by_name = {
        e["host"]: e["score"]
        for e in scorer.call("POST", "/extender/prioritize", json=names).json()
    }
    items = [{"metadata": {"name": name}} for name in ("near", "far")]
    whole = {"pod": a_pod(), "nodes": {"items": items}}
    by_node = scorer.call("POST", "/extender/prioritize", json=whole).json()

    assert sorted(by_name.values()) == [0, 5, 10]
    assert by_name["stranger"] == 5
    assert {e["host"]: e["score"] for e in by_node} == {
        name: by_name[name] for name in ("near", "far")
    }


def test_the_extender_passes_over_nodes_that_no_cluster_has(scorer: Scorer) -> None:
    items = [
        {"metadata": {"name": "n" * 300}},
        {"metadata": {"name": "less"}, "status": {"allocatable": {"cpu": "-1"}}},
        {"metadata": {"name": "near"}},
    ]
    answer = scorer.call(
        "POST", "/extender/prioritize", json={"pod": a_pod(), "nodes": {"items": items}}
    )
    assert answer.status_code == 200
    assert [e["score"] for e in answer.json()] == [5, 5, 10]


def test_the_extender_filters_only_where_hard_limits_are_enforced(tmp_path: Path) -> None:
    body = {"pod": a_pod(latencyHardConstraint="30"), "nodenames": ["near", "far", "full"]}
    whole = {
        "pod": body["pod"],
        "nodes": {"items": [{"metadata": {"name": name}} for name in ("near", "far")]},
    }
    lenient = Scorer(tmp_path).call("POST", "/extender/filter", json=body).json()
    strict = Scorer(tmp_path, enforce_hard_limit=True)
    said = strict.call("POST", "/extender/filter", json=body).json()

    assert lenient["nodenames"] == ["near", "far", "full"]
    assert said["nodenames"] == ["near", "full"], "unknown latency passes"
    assert "80.0 ms" in said["failedNodes"]["far"]
    items = strict.call("POST", "/extender/filter", json=whole).json()["nodes"]["items"]
    assert [item["metadata"]["name"] for item in items] == ["near"]


def test_records_are_kept_with_what_would_have_flipped_them(scorer: Scorer) -> None:
    body = {"kind": "placements", "placements": [a_record(scorer)], "dropped": 3}
    answer = scorer.call("POST", "/v1/records", json=body, headers=AUTHORIZED)

    assert answer.status_code == 202, answer.text
    kept = scorer.parts.placements.latest[-1]
    assert set(kept["reasons"]["contributions"]) == {"near", "far"}
    graphs = scorer.call("GET", "/v1/graphs").json()
    assert graphs["chosen_latency_ms"] == [{"pod": "shop/cart", "ms": 5.0, "node": "near"}]
    assert graphs["records_dropped"] == 3


def a_record(scorer: Scorer) -> dict[str, Any]:
    said = scorer.suggest(cpu_millicores=100, memory_mib=64, soft_limit_ms=20)
    rows = {
        row["node"]: {
            "node": row["node"],
            "q": row["q"],
            "score": row["score"],
            "features": list(row["features"].values()),
        }
        for row in said["nodes"]
    }
    width = 32
    return {
        "namespace": "shop",
        "pod": "cart",
        "uid": "uid",
        "node": "near",
        "path": "scored",
        "mode": "enforce",
        "policy": said["policy"],
        "chosen": rows["near"],
        "alternatives": [rows["far"]],
        "pooled_mean": [0.1] * width,
        "pooled_max": [0.5] * width,
    }


@pytest.mark.parametrize(
    "record", [None, 7, {}, {"policy": "fixture-e1a6d72b07ff", "chosen": {"features": "x"}}]
)
def test_records_of_any_shape_are_kept_as_they_came(scorer: Scorer, record: Any) -> None:
    body = {"kind": "placements", "placements": [record]}

    assert scorer.call("POST", "/v1/records", json=body, headers=AUTHORIZED).status_code == 202


def test_a_scorer_without_a_policy_says_so(tmp_path: Path) -> None:
    scorer = Scorer(tmp_path)
    scorer.board.policy = None

    for method, path, body in (
        ("POST", "/v1/suggestions", {"pod": {}}),
        ("POST", "/extender/prioritize", {"nodenames": ["a"]}),
        ("GET", "/readyz", None),
    ):
        assert scorer.call(method, path, json=body).status_code == 503
    assert scorer.call("GET", "/v1/table").json()["policy"] is None
    assert scorer.call("GET", "/healthz").status_code == 200


def test_the_page_and_its_parts_are_served(scorer: Scorer) -> None:
    for path, kind in (("/", "text/html"), ("/page.js", "javascript"), ("/page.css", "text/css")):
        answer = scorer.call("GET", path)
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
    page, script = scorer.call("GET", "/").text, scorer.call("GET", "/page.js").text

    assert '<script src="/page.js" defer>' in page
    for graph in ("pods", "active", "latency"):
        assert f'<svg id="{graph}"' in page
        assert f"draw(document.getElementById('{graph}')" in script
    drawn = set(re.findall(r"graphs\.(\w+)", script))
    assert {"pods_per_node", "active_nodes", "chosen_latency_ms"} <= drawn
    assert drawn <= set(scorer.call("GET", "/v1/graphs").json()), "it draws what is not answered"
    listed = set(re.findall(r"\bn\.(\w+)", script))
    assert listed <= set(scorer.call("GET", "/v1/nodes").json()["nodes"][0])


def test_a_body_that_is_too_large_or_endless_is_refused(scorer: Scorer) -> None:
    answer = scorer.call(
        "POST", "/v1/suggestions", content=b"{}", headers={"Content-Length": str(1 << 40)}
    )
    assert answer.status_code == 413
    assert json.loads(answer.text)["error"]["code"] == "too_large"
