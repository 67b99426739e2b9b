# SPDX-License-Identifier: Apache-2.0
"""The witness itself: each rule finds what it is for, and it borrows nothing from the guard."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pilothouse.domain import Mode, Status, Verb
from pilothouse.settings import GuardSettings, ModeSettings, Settings
from pilothouse.sim.command import Command
from pilothouse.testing import checker
from pilothouse.testing.checker import Notice, check


def command(verb: Verb, name: str, value: int, original: int, **changes: object) -> Command:
    kind = {
        Verb.SCALE: "workload",
        Verb.GATE: "namespace",
        Verb.EVICT: "pod",
        Verb.CPU_LIMIT: "pod",
        Verb.MEMORY_REQUEST: "pod",
    }.get(verb, "node")
    facts: dict[str, object] = {
        "tick": 0,
        "seconds": 0,
        "intent": "",
        "agent": "stranger",
        "verb": str(verb),
        "target": f"sim/{kind}/{name}",
        "namespace": "" if kind == "node" else "shop",
        "workload": "cart" if kind in ("workload", "pod") else "",
        "node": name if kind == "node" else "",
        "value": value,
        "original": original,
        "status": str(Status.DONE),
        "detail": "",
        "managed": 1,
        "protected": 0,
        "priority": 100,
        "baseline": 4,
        "limit_declared": 1000,
        "node_pods": 0,
        "nodes": 20,
        "pods": 100,
        "evictable": 1 if kind == "pod" else 0,
    }
    return Command(**{**facts, **changes})  # type: ignore[arg-type]


def log_of(*commands: Command) -> list[Command]:
    """Commands one hour apart, each an action of its own, unless they say otherwise."""
    return [
        replace_command(c, seconds=c.seconds or 4_000 * n, intent=c.intent or f"d{n}.0.0")
        for n, c in enumerate(commands, 1)
    ]


def replace_command(c: Command, **changes: object) -> Command:
    fields = {name: getattr(c, name) for name in Command.__slots__}
    return Command(**{**fields, **changes})  # type: ignore[arg-type]


def rules(log: list[Command], settings: Settings | None = None, *notices: Notice) -> set[str]:
    return {v.rule for v in check(log, settings or Settings(), notices)}


def test_ordinary_log_is_clean():
    log = log_of(
        command(Verb.FREQUENCY, "worker-1", 650, 1000),
        command(Verb.FREQUENCY, "worker-1", 1000, 650, agent="janitor"),
        command(Verb.SCALE, "shop/cart", 5, 4),
        command(Verb.SCALE, "shop/cart", 4, 5, agent="janitor"),
    )
    assert [v.rule for v in check(log, Settings())] == ["overdue"] * 2  # one hour is too long
    quick = [replace_command(c, seconds=600 * n) for n, c in enumerate(log, 1)]
    assert check(quick, Settings()) == []


@pytest.mark.parametrize(
    ("rule", "one"),
    [
        ("protected", command(Verb.EVICT, "shop/a", 1, 0, protected=1)),
        ("protected", command(Verb.EVICT, "shop/a", 1, 0, managed=0)),
        ("protected", command(Verb.EVICT, "shop/a", 1, 0, evictable=0)),
        ("protected", command(Verb.SCALE, "shop/cart", 5, 4, priority=2_000_000)),
        ("protected", command(Verb.DRAIN, "worker-1", 1, 0, evictable=3, closed=1)),
        ("protected", command(Verb.DRAIN, "worker-1", 1, 0, evictable=1, top_priority=10**6)),
        ("disturbed-share", command(Verb.DRAIN, "worker-1", 2, 0, evictable=6)),
        ("drains-at-once", command(Verb.DRAIN, "worker-1", 1, 0, evictable=1, draining=1)),
        ("reject", command(Verb.GATE, "shop", 3, 0)),
        ("replica-factor", command(Verb.SCALE, "shop/cart", 9, 4)),
        ("replica-factor", command(Verb.SCALE, "shop/cart", 3, 4)),
        ("cpu-floor", command(Verb.CPU_LIMIT, "shop/a", 499, 1000)),
        ("cpu-floor", command(Verb.CPU_LIMIT, "shop/a", 1001, 1000)),
        ("memory-floor", command(Verb.MEMORY_REQUEST, "shop/a", 119, 200, peak=100)),
        ("frequency-floor", command(Verb.FREQUENCY, "worker-1", 499, 1000)),
        ("false-restore", command(Verb.SCALE, "shop/cart", 40, 4, agent="janitor")),
    ],
)
def test_one_bad_write_is_found(rule: str, one: Command):
    assert rule in rules(log_of(one))


def test_growing_a_workload_that_is_below_what_was_declared_is_no_violation():
    assert "replica-factor" not in rules(log_of(command(Verb.SCALE, "shop/cart", 3, 2)))


def test_refused_write_is_no_violation():
    assert (
        rules(log_of(command(Verb.SCALE, "shop/cart", 99, 4, status=str(Status.REFUSED)))) == set()
    )


def test_actions_in_a_window_are_counted_by_agent_node_workload_and_namespace():
    tight = Settings(guard=GuardSettings(per_agent=1, per_node=1, per_workload=1, per_namespace=1))
    for one, rule in (
        (command(Verb.FREQUENCY, "worker-1", 900, 1000), "per-node"),
        (command(Verb.SCALE, "shop/cart", 5, 4), "per-workload"),
        (command(Verb.GATE, "shop", 1, 0), "per-namespace"),
    ):
        first = replace_command(one, seconds=1_000, intent="a.0.0")
        inside = replace_command(one, seconds=1_599, intent="b.0.0")
        after = replace_command(one, seconds=1_600, intent="b.0.0")
        assert {rule, "per-agent"} <= rules([first, inside], tight)
        assert not {rule, "per-agent"} & rules([first, after], tight)
        same_action = replace_command(one, seconds=1_000, intent="a.0.1")
        assert not {rule, "per-agent"} & rules([first, same_action], tight)


def test_nodes_out_of_service_are_counted_until_they_are_back():
    out = [command(Verb.TAINT, f"worker-{n}", 1, 0) for n in range(3)]
    back = command(Verb.TAINT, "worker-0", 0, 1, agent="janitor")
    assert "node-share" in rules(log_of(*out))
    assert "node-share" not in rules(log_of(out[0], out[1], back, out[2]))
    asleep = command(Verb.DRAIN, "worker-0", 2, 0)
    woken = command(Verb.POWER, "worker-0", 1, 0)
    assert "node-share" not in rules(log_of(asleep, out[1], woken, out[2]))
    assert "node-share" in rules(log_of(asleep, out[1], out[2]))


def test_drain_that_ended_by_itself_is_no_longer_counted():
    """A dead machine is not drained any more; the refused restore says so."""
    drain = [command(Verb.DRAIN, f"worker-{n}", 1, 0) for n in range(3)]
    refused = str(Status.REFUSED)
    ended = command(Verb.DRAIN, "worker-0", 0, 0, agent="janitor", status=refused)
    assert "node-share" not in rules(log_of(drain[0], drain[1], ended, drain[2]))
    assert "node-share" in rules(log_of(*drain))


def test_share_is_exact_where_floating_point_is_not():
    seventy = [command(Verb.TAINT, f"worker-{n}", 1, 0, nodes=70) for n in range(8)]
    assert "node-share" not in rules(log_of(*seventy[:7]))
    assert "node-share" in rules(log_of(*seventy))


def test_safety_may_empty_a_node_beyond_the_share_and_nobody_may_add_to_it():
    drain = command(Verb.DRAIN, "worker-1", 1, 0, evictable=20, agent="safety", seconds=10)
    evict = command(Verb.EVICT, "shop/a", 1, 0, seconds=20)
    lost = replace_command(evict, failed=1)
    assert "disturbed-share" not in rules(log_of(drain))
    assert "disturbed-share" in rules(log_of(drain, evict))
    assert "disturbed-share" not in rules(log_of(drain, lost))


def test_field_rests_and_is_not_turned_again_and_again():
    down = command(Verb.FREQUENCY, "worker-1", 900, 1000, seconds=1_000)
    up = command(Verb.FREQUENCY, "worker-1", 1000, 900, seconds=1_119)
    assert "dwell" in rules(log_of(down, up))
    later = replace_command(up, seconds=1_120)
    assert not {"dwell", "reversals"} & rules(log_of(down, later))
    again = replace_command(down, seconds=1_300)
    assert "reversals" in rules(log_of(down, later, again))
    in_quarantine = replace_command(down, seconds=1_120 + 3_599)
    assert "reversals" in rules(log_of(down, later, in_quarantine))
    at_last = replace_command(down, seconds=1_120 + 3_600)
    assert "reversals" not in rules(log_of(down, later, at_last))


def test_third_gated_namespace_is_found():
    spaces = [command(Verb.GATE, n, 1, 0, namespace=n) for n in ("a", "b", "c")]
    assert "gated-namespaces" not in rules(log_of(*spaces[:2]))
    assert "gated-namespaces" in rules(log_of(*spaces))
    opened = command(Verb.GATE, "a", 0, 1, namespace="a", agent="janitor")
    assert "gated-namespaces" not in rules(log_of(spaces[0], spaces[1], opened, spaces[2]))


def test_write_after_a_halt_is_found_unless_it_restores():
    log = log_of(
        command(Verb.FREQUENCY, "worker-1", 900, 1000),
        command(Verb.FREQUENCY, "worker-2", 900, 1000),
    )
    halt, resume = Notice(position=1, halted=True), Notice(position=1, halted=False)
    assert "halted" in rules(log, None, halt)
    assert "halted" not in rules(log, None, halt, resume)
    taken_back = replace_command(log[1], agent="janitor")
    assert "halted" not in rules([log[0], taken_back], None, halt)


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW, Mode.ADVISE])
def test_write_by_an_agent_that_does_not_enforce_is_found(mode: Mode):
    scale = log_of(command(Verb.SCALE, "shop/cart", 5, 4))
    drain = log_of(command(Verb.DRAIN, "worker-1", 1, 0, evictable=1, spaces=("media", "shop")))
    for log in (scale, drain):
        for key in ("stranger", "stranger/shop"):
            assert "mode" in rules(log, Settings(modes=ModeSettings(agents={key: mode})))
            assert "mode" in rules(log, None, Notice(position=0, key=key, mode=mode))
            assert "mode" not in rules(log, None, Notice(position=1, key=key, mode=mode))
        assert "mode" not in rules(log, Settings(modes=ModeSettings(agents={"safety": mode})))


def test_intent_that_succeeded_twice_is_found():
    one = command(Verb.FREQUENCY, "worker-1", 900, 1000, intent="a.0.0")
    assert "intent" in rules(log_of(one, one))


def test_what_is_never_taken_back_is_found():
    gate = command(Verb.GATE, "shop", 1, 0, seconds=100)
    assert "overdue" not in {v.rule for v in check(log_of(gate), Settings(), until=2_200)}
    assert "overdue" in {v.rule for v in check(log_of(gate), Settings(), until=2_201)}
    tried = command(
        Verb.GATE, "shop", 0, 2, seconds=1_900, agent="janitor", status=str(Status.REFUSED)
    )
    assert "overdue" not in {v.rule for v in check(log_of(gate, tried), Settings(), until=9_999)}


def test_witness_imports_nothing_from_the_guard_or_the_loop():
    tree = ast.parse(Path(checker.__file__).read_text())
    found = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    ours = {name for name in found if name and name.startswith("pilothouse")}
    assert ours == {"pilothouse.domain", "pilothouse.settings", "pilothouse.sim.command"}


def test_witness_loads_nothing_of_the_guard_by_detour():
    code = "import sys, pilothouse.testing.checker; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    forbidden = ("pilothouse.guard", "pilothouse.decide", "pilothouse.act", "pilothouse.arbitrate")
    assert [name for name in loaded if name.startswith(forbidden)] == []
