# SPDX-License-Identifier: Apache-2.0
"""The arms of the benchmark: the stock scheduler, ours, and ours with a broken scorer."""

from __future__ import annotations

import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from pilothouse.lab import Lab, placement
from pilothouse.lab.build import Binaries
from pilothouse.lab.component import Component, Site, flags
from pilothouse.testing import impostor

GARBAGE_EVERY = "400ms"
QUERIES_PER_SECOND = 5000  # of both arms, so that the client's own limit measures nothing
ARMS = {
    "stock": "the stock scheduler with its default profile",
    "packing": "the stock scheduler, scoring by most allocated: what packing itself costs",
    "plugin": "ours with the shipped el-rl profile, which switches two default scorers off",
    "ee": "ours with the shipped ee profile and its policy",
    "lb": "ours with the shipped lb profile and its policy",
    "hybrid": "ours with the shipped hybrid profile: the plugin on top of all default scorers",
    "killed": "as plugin, the scorer killed",
    "hung": "as plugin, the scorer stopped: accepts and never answers",
    "slow": "as plugin, every other answer later than the plugin waits",
    "flapping": "as plugin, tables that live for a second and nobody there between them",
    "garbage": "as plugin, another kind of garbage at every refresh, of which there are more",
    "extender": "the stock scheduler asking the scorer as an extender",
}
STOCK_BINARY = ("stock", "packing", "extender")
BROKEN = ("killed", "hung", "slow", "flapping", "garbage")
OTHER_POLICIES = ("ee", "lb")
BY_IMPOSTOR = ("slow", "flapping", "garbage")
MOST_ALLOCATED = {
    "schedulerName": "default-scheduler",
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "NodeResourcesFitArgs",
                "scoringStrategy": {"type": "MostAllocated"},
            },
        }
    ],
}


def site_of(lab: Lab) -> Site:
    planned = lab.planned
    assert planned is not None
    binaries = Binaries(folder=lab.layout.binaries, origin=planned.origin)
    return Site(layout=lab.layout, binaries=binaries, ports=planned.ports)


def configuration(site: Site, arm: str, *, percentage: int) -> Path:
    """The profile of one arm; sampling and client limits are the same in all."""
    document = _stock(site, arm) if arm in STOCK_BINARY else _ours(site, arm)
    document["percentageOfNodesToScore"] = percentage
    document["leaderElection"] = {"leaderElect": False}
    document["clientConnection"] = {
        "kubeconfig": site.kubeconfig("kube-scheduler"),
        "qps": QUERIES_PER_SECOND,
        "burst": QUERIES_PER_SECOND,
    }
    path = site.layout.folder("scheduler") / f"{arm}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _stock(site: Site, arm: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    if arm == "packing":
        document["profiles"] = [MOST_ALLOCATED]
    if arm == "extender":
        document["extenders"] = [
            {
                "urlPrefix": f"http://127.0.0.1:{site.ports['scorer']}/extender",
                "prioritizeVerb": "prioritize",
                "weight": 10,
                "nodeCacheCapable": True,
                "ignorable": True,
                "enableHTTPS": False,
            }
        ]
    return document


def _ours(site: Site, arm: str) -> dict[str, Any]:
    profile = arm if arm in ("hybrid", *OTHER_POLICIES) else "el-rl"
    document: dict[str, Any] = yaml.safe_load(placement.configuration(site, profile).read_text())
    for entry in document["profiles"][0]["pluginConfig"]:
        if entry["name"] == placement.PLUGIN and arm in BY_IMPOSTOR:
            entry["args"]["scorerAddress"] = f"http://127.0.0.1:{_impostor_port(site)}"
            if arm == "garbage":  # so that every kind has its turn before the pods are placed
                entry["args"]["refresh"] = GARBAGE_EVERY
    return document


def scheduler(site: Site, arm: str, *, percentage: int) -> Component:
    binary = "kube-scheduler" if arm in STOCK_BINARY else "pilothouse-scheduler"
    return Component(
        name="kube-scheduler",
        command=(
            site.binaries[binary],
            *flags(
                config=str(configuration(site, arm, percentage=percentage)),
                authentication_kubeconfig=site.kubeconfig("kube-scheduler"),
                authorization_kubeconfig=site.kubeconfig("kube-scheduler"),
                bind_address="127.0.0.1",
                secure_port=site.ports["kube-scheduler"],
                tls_cert_file=site.pki("loopback.crt"),
                tls_private_key_file=site.pki("loopback.key"),
            ),
        ),
    )


@contextmanager
def scorer_as(lab: Lab, arm: str, turn: int) -> Iterator[Counter[str]]:
    """The scorer in the state that the arm is about; whole again afterwards.

    Who has the stock scheduler runs none, and it would take its share of the same processors. What
    comes back counts the garbage that the plugin was given, by kind.
    """
    met: Counter[str] = Counter()
    if arm in ("stock", "packing", "killed"):
        lab.kill("scorer")
        try:
            yield met
        finally:
            lab.restart("scorer")
    elif arm == "hung":
        lab.signal("scorer", signal.SIGSTOP)
        try:
            yield met
        finally:
            lab.signal("scorer", signal.SIGCONT)
    elif arm in BY_IMPOSTOR:
        behavior = _behavior(lab, arm, turn, met)
        lab.kill("scorer")
        try:
            with impostor.impostor(_impostor_port(site_of(lab)), behavior):
                yield met
        finally:
            lab.restart("scorer")
    elif arm in OTHER_POLICIES:
        lab.kill("scorer")
        lab.start(placement.scorer(site_of(lab), arm, prometheus=False))
        try:
            wait(lambda: scorer_answers(lab), 120)
            yield met
        finally:
            lab.kill("scorer")
            assert lab.planned is not None
            lab.start(placement.scorer(site_of(lab), lab.planned.policy, prometheus=False))
    else:
        yield met


def scorer_answers(lab: Lab) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{lab.scorer_url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait(done: Callable[[], bool], seconds: float, *, every: float = 0.2) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds:g} s")
        time.sleep(every)


def _behavior(lab: Lab, arm: str, turn: int, met: Counter[str]) -> impostor.Behavior:
    assert lab.scorer_url is not None
    table = impostor.good_table(lab.scorer_url)
    if arm == "slow":
        return impostor.slow(table)
    if arm == "flapping":
        return impostor.flapping(table)
    kinds = list(impostor.counted(impostor.garbage(table), met).values())
    first = turn % 2 * (len(kinds) // 2)  # a short run is over before every kind had its turn
    return impostor.in_turn(*kinds[first:], *kinds[:first])


def _impostor_port(site: Site) -> int:
    return site.ports["scorer"] + 1000
