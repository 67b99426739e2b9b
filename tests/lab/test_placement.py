# SPDX-License-Identifier: Apache-2.0
"""The learned scheduler's profiles and the lab's ways to the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pilothouse.errors import LabUnavailable, UnknownName
from pilothouse.lab import placement
from pilothouse.lab.build import Binaries
from pilothouse.lab.component import Site
from pilothouse.lab.delay import delays
from pilothouse.lab.lab import PORTS, Wish
from pilothouse.lab.layout import Layout, Worker

WORKERS = [Worker(number=n, cpu_millicores=500, memory_mib=512) for n in (1, 2, 3)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(
        layout=Layout(tmp_path),
        binaries=Binaries(folder=tmp_path / "bin", origin={}),
        ports={name: 20_000 + i for i, name in enumerate(PORTS)},
    )


def profile(name: str) -> dict[str, Any]:
    return yaml.safe_load((placement.profiles() / f"{name}.yaml").read_text())


def plugin_arguments(document: dict[str, Any]) -> dict[str, Any]:
    entries = document["profiles"][0]["pluginConfig"]
    return next(e["args"] for e in entries if e["name"] == placement.PLUGIN)


def test_there_is_a_profile_for_every_policy_and_two_more() -> None:
    assert placement.profile_names() == ("ee", "el-rl", "hybrid", "isolated", "lb")


@pytest.mark.parametrize("name", placement.profile_names())
def test_no_profile_touches_the_filters(name: str) -> None:
    plugins = profile(name)["profiles"][0]["plugins"]

    assert not {"filter", "preFilter", "postFilter"} & set(plugins)
    assert "disabled" not in plugins["multiPoint"]


@pytest.mark.parametrize("name", placement.profile_names())
def test_every_node_is_scored_as_when_the_policies_were_judged(name: str) -> None:
    assert profile(name)["percentageOfNodesToScore"] == 100


@pytest.mark.parametrize("name", ["ee", "lb", "el-rl"])
def test_only_what_opposes_the_policy_is_off(name: str) -> None:
    document = profile(name)["profiles"][0]
    off = {entry["name"] for entry in document["plugins"]["score"]["disabled"]}
    spread = next(e for e in document["pluginConfig"] if e["name"] == "PodTopologySpread")

    assert off == {"NodeResourcesFit", "NodeResourcesBalancedAllocation"}
    assert spread["args"]["defaultConstraints"] == []


@pytest.mark.parametrize("name", ["ee", "lb", "el-rl", "isolated"])
def test_where_nothing_else_looks_at_resources_there_is_a_fallback(name: str) -> None:
    assert plugin_arguments(profile(name))["fallback"] == "leastAllocated"


def test_isolated_has_no_other_scorer_and_hybrid_needs_no_fallback() -> None:
    assert profile("isolated")["profiles"][0]["plugins"]["score"]["disabled"] == [{"name": "*"}]
    assert "fallback" not in plugin_arguments(profile("hybrid"))


def test_the_lab_puts_its_addresses_into_the_profile(site: Site) -> None:
    document = yaml.safe_load(placement.configuration(site, "el-rl").read_text())
    arguments = plugin_arguments(document)

    token = placement.token_file(site.layout)
    assert arguments["scorerAddress"] == f"http://127.0.0.1:{site.ports['scorer']}"
    assert arguments["journalAddress"] == arguments["scorerAddress"]
    assert arguments["journalTokenFile"] == str(token)
    assert arguments["mode"] == "enforce"
    assert document["leaderElection"] == {"leaderElect": False}
    assert len(token.read_text().strip()) > 30
    assert token.stat().st_mode & 0o077 == 0


def test_the_scorer_asks_prometheus_where_the_lab_has_one(site: Site) -> None:
    address = f"--prometheus=http://127.0.0.1:{site.ports['prometheus']}"

    assert address in placement.scorer(site, "ee", prometheus=True).command
    assert "prometheus" not in " ".join(placement.scorer(site, "ee", prometheus=False).command)


def test_an_unknown_profile_is_named(site: Site) -> None:
    with pytest.raises(UnknownName, match="el-rl"):
        placement.configuration(site, "el-lr")


def test_latencies_are_set_and_kept(site: Site) -> None:
    placement.set_latency(site.layout, WORKERS, {"worker-1": 40.0})
    found = placement.set_latency(site.layout, WORKERS, {"worker-2": 5.0})

    assert found == {"worker-1": 40.0, "worker-2": 5.0, "worker-3": 0.0}
    assert delays(placement.delays_file(site.layout)) == {"worker-1": 40.0, "worker-2": 5.0}


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"worker-9": 1.0}, UnknownName), ({"worker-1": -1.0}, LabUnavailable)],
)
def test_impossible_latencies_are_refused(
    site: Site, changes: dict[str, float], error: type[Exception]
) -> None:
    with pytest.raises(error):
        placement.set_latency(site.layout, WORKERS, changes)


@pytest.mark.parametrize(
    ("wish", "error"),
    [(Wish(scheduler="slurm"), UnknownName), (Wish(policy="ee"), LabUnavailable)],
)
def test_wishes_that_make_no_sense_are_refused(wish: Wish, error: type[Exception]) -> None:
    with pytest.raises(error):
        wish.check()
