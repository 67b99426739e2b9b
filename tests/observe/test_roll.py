# SPDX-License-Identifier: Apache-2.0
"""Columns that are kept say what columns made anew would say."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from pilothouse.clients.metrics import Sample, Usage
from pilothouse.clients.resources import Meta, Namespace, Owner, Pod
from pilothouse.domain import Snapshot
from pilothouse.observe import MetricsApi, Observer, UsagePoll
from pilothouse.observe import roll as rolls
from pilothouse.observe.roll import Roll
from tests.observe.test_observer import NOW, FakeStore, a_meta, a_node, a_pod

REMEMBERED = {"memory_peak_mib", "oom_kills"}  # a newcomer cannot know the past
AT = NOW.timestamp()


def usage_of(pods: list[Pod], random: random.Random) -> Usage:
    return Usage(
        source="test",
        nodes={},
        pods={
            (p.metadata.namespace, p.metadata.name): Sample(
                cpu_millicores=random.randrange(500), memory_mib=random.randrange(100), at=AT
            )
            for p in pods
            if random.random() < 0.9
        },
    )


def some_pod(number: int, version: int, random: random.Random) -> Pod:
    owners = [
        None,
        Owner(kind="ReplicaSet", name="cart-1", uid="uid-cart-1", controller=True),
        Owner(kind="Job", name="gone", uid="uid-nobody", controller=True),
    ]
    return a_pod(
        f"pod-{number}",
        owner=random.choice(owners),
        node=random.choice(["n1", "n2", "gone", ""]),
        phase=random.choice(["Running", "Running", "Pending", "Succeeded"]),
        ready=random.random() < 0.7,
        namespace=("shop", "kube-system", "other")[number % 3],  # never changes
        age=400 - number % 300,
        resource_version=str(version),
    )


def assert_same(kept: Snapshot, anew: Snapshot) -> None:
    for name in ("pods", "nodes", "workloads", "namespaces"):
        mine, fresh = getattr(kept, name), getattr(anew, name)
        for field in fields(mine):
            if field.name not in REMEMBERED:
                one, other = getattr(mine, field.name), getattr(fresh, field.name)
                assert one.dtype == other.dtype, (name, field.name)
                assert np.array_equal(one, other), (name, field.name)
    assert kept.troubles == anew.troubles


@pytest.mark.parametrize("seed", range(6))
def test_snapshot_of_an_old_observer_equals_one_of_a_new_observer(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolls, "FEWEST_WORDS", 4)  # so that names are forgotten within the test
    monkeypatch.setattr(rolls, "FEWEST_SLOTS", 4)
    chance = random.Random(seed)
    store: Any = FakeStore()
    poll = UsagePoll(MetricsApi())
    kept = Observer(
        store=store, usage=poll, cluster="lab", now=NOW.timestamp, namespaces=("shop", "kube-*")
    )
    pods: dict[int, Pod] = {}
    for look in range(40):
        for _ in range(chance.randrange(8)):
            number = chance.randrange(60)
            if number in pods and chance.random() < 0.5:
                del pods[number]
            else:
                pods[number] = some_pod(number, look, chance)
        store.things["pods"] = chance.sample(list(pods.values()), len(pods))
        store.things["nodes"] = [a_node("n1")] + [a_node("n2")] * (look % 2)
        if look % 3 == 0:
            poll.latest = usage_of(list(pods.values()), chance)
        anew = Observer(
            store=store, usage=poll, cluster="lab", now=NOW.timestamp, namespaces=("shop", "kube-*")
        )
        assert_same(kept.observe(), anew.observe())


def test_look_without_changes_reads_no_object_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    facts = rolls.facts
    monkeypatch.setattr(rolls, "facts", lambda pod: read.append(pod.metadata.name) or facts(pod))
    roll = Roll(lambda meta: int(meta.uid))
    pods = [a_pod(f"p{n}", uid=str(n)) for n in range(5)]
    roll.update(pods)
    roll.update(pods)
    assert len(read) == 5
    roll.update([a_pod(f"p{n}", uid=str(n)) for n in range(5)])  # listed anew, nothing changed
    assert len(read) == 5
    changed = [*pods[:4], a_pod("p4", uid="4", restarts=1, resource_version="2")]
    roll.update(changed)
    assert read[5:] == ["p4"]


def a_roll(pod: Pod) -> Roll:
    roll = Roll(lambda meta: 1)
    roll.update([pod])
    return roll


def held(mib: int, at: float) -> Usage:
    sample = Sample(cpu_millicores=1, memory_mib=mib, at=at)
    return Usage(source="test", nodes={}, pods={("shop", "p"): sample})


def test_growth_is_told_from_the_last_minute() -> None:
    roll = a_roll(a_pod("p"))
    for second in range(0, 200, 5):
        roll.take(held(100 + second, AT + second))
    assert roll.growth_mib_per_minute(roll.unfinished()).tolist() == [60]
    assert roll["peak_mib"][roll.unfinished()].tolist() == [295]


def test_growth_needs_some_seconds_of_history() -> None:
    roll = a_roll(a_pod("p"))
    roll.take(held(100, AT))
    roll.take(held(200, AT + 5))
    assert roll.growth_mib_per_minute(roll.unfinished()).tolist() == [0]


def test_restart_forgets_what_the_container_before_held() -> None:
    roll = a_roll(a_pod("p"))
    for second in range(0, 30, 5):
        roll.take(held(100 + second, AT + second))
    roll.update([a_pod("p", restarts=1, oom=True, resource_version="2")])
    roll.take(held(10, AT + 30))
    slots = roll.unfinished()
    assert roll["peak_mib"][slots].tolist() == [10]
    assert roll["oom_kills"][slots].tolist() == [1]
    assert roll.growth_mib_per_minute(slots).tolist() == [0]


def test_place_of_a_pod_that_is_gone_is_given_away_clean() -> None:
    roll = a_roll(a_pod("p", restarts=3, oom=True))
    roll.take(held(100, AT))
    roll.update([])
    assert roll.unfinished().size == 0
    roll.update([a_pod("q", uid="uid-q")])
    roll.take(held(100, AT))
    slots = roll.unfinished()
    assert roll.names[slots].tolist() == ["q"]
    for column in ("restarts", "oom_kills", "peak_mib", "memory_used"):
        assert roll[column][slots].tolist() == [0]


def test_owner_in_a_namespace_that_is_not_shown_is_nobody() -> None:
    """Somebody may write any uid into an owner reference."""
    store: Any = FakeStore()
    foreign = Owner(kind="Deployment", name="cart", uid="uid-cart", controller=True)
    store.things["namespaces"].append(Namespace(metadata=a_meta("mine", namespace="")))
    store.things["pods"] = [a_pod("liar", owner=foreign, namespace="mine")]
    observer = Observer(
        store=store,
        usage=UsagePoll(MetricsApi()),
        cluster="lab",
        now=NOW.timestamp,
        namespaces=("mine",),
    )
    snapshot = observer.observe()
    assert snapshot.workloads.names.tolist() == ["liar"]
    assert snapshot.pods.workload.tolist() == [0]


def test_empty_cluster_has_empty_columns() -> None:
    roll = Roll(lambda meta: 0)
    roll.update([])
    roll.take(Usage(source="test", nodes={}, pods={}))
    assert roll.unfinished({"shop"}).size == 0
    assert Meta().uid == ""
