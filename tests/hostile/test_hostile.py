# SPDX-License-Identifier: Apache-2.0
"""Any proposer, even a hostile one: nothing happens that never may, and the honest still act.

The short form of ``benchmarks/hostile``.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from pilothouse.domain import Mode, Snapshot
from pilothouse.propose.registry import THIRD_PARTY_RANK, Registration
from pilothouse.settings import Settings
from pilothouse.testing.campaign import VARIANTS, Campaign, OpenGuard, Tale
from pilothouse.testing.checker import Notice
from pilothouse.testing.hostile import Fuzzer, Recipe, band
from pilothouse.testing.strategies import book, recipes


@cache
def recipe_book() -> tuple[Recipe, ...]:
    return tuple(book(seed=1, count=300))


def some(settings: Settings, seed: int, *names: str) -> list[Registration]:
    return [r for r in band(settings, recipe_book(), seed) if not names or r.name in names]


CAMPAIGNS = [
    ("harbor", "default", 60, ()),  # everybody at once
    ("idle", "roomy", 80, ("flapper", "miser", "contrarian", "grudge")),
    ("node-degradation", "brisk", 80, ("drainer", "inflater", "vandal", "fuzzer")),
    ("queue-surge", "shadow", 80, ("drainer", "inflater", "miser", "contrarian")),
    ("rival-controller", "protected", 80, ("grudge", "impostor", "safety-2", "flood")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "variant", "cycles", "names"), CAMPAIGNS)
def test_no_proposer_makes_anything_happen_that_never_may(
    scenario: str, variant: str, cycles: int, names: tuple[str, ...]
):
    settings = VARIANTS[variant]
    tale = Campaign(
        scenario=scenario, seed=7, settings=settings, strangers=some(settings, 7, *names)
    ).run(cycles)
    assert tale.decisions == cycles
    assert tale.violations == []
    assert tale.misread == []
    assert tale.kept >= 0.9 * tale.wanted, tale.displaced
    assert tale.wanted > 0
    assert sum(tale.refusals.values()) > cycles


def test_without_the_guard_the_witness_finds_violations_of_many_kinds():
    found: Counter[str] = Counter()
    for scenario, variant, names in (
        ("harbor", "default", ("grudge", "flapper")),
        ("queue-surge", "shadow", ("drainer", "miser")),
    ):
        settings = VARIANTS[variant]
        strangers = some(settings, 7, *names)
        tale = Campaign(
            scenario=scenario, seed=7, settings=settings, strangers=strangers, guard=OpenGuard
        ).run(40)
        found.update(v.rule for v in tale.violations)
    expected = {"protected", "mode", "node-share", "per-agent", "per-workload", "per-node", "dwell"}
    assert expected <= set(found), found


def test_honest_agents_alone_leave_a_clean_record():
    tale = Campaign(scenario="harbor", seed=3, settings=Settings(), strangers=(), calm=True).run(80)
    assert tale.violations == []
    assert tale.honest > 0
    assert tale.kept == tale.wanted


def test_same_seed_gives_the_same_campaign():
    def story() -> tuple[Tale, list[object]]:
        campaign = Campaign(
            scenario="light",
            seed=5,
            settings=Settings(),
            strangers=some(Settings(), 5, "fuzzer", "vandal", "drainer"),
        )
        return campaign.run(20), [*campaign.cluster.log()]

    assert story() == story()


def test_what_an_agent_is_shown_cannot_be_written_on():
    class Scribbler:
        name, title = "scribbler", "Scribbler"
        touched = 0

        def propose(self, snapshot: Snapshot, forecast: object) -> list[object]:
            for column in (snapshot.namespaces.protected, snapshot.pods.node, snapshot.nodes.names):
                with pytest.raises(ValueError, match="read-only"):
                    column[:] = 0
                self.touched += 1
            return []

    scribbler = Scribbler()
    registration = Registration(scribbler, THIRD_PARTY_RANK, "Scribbler")  # type: ignore[arg-type]
    Campaign(scenario="light", seed=1, settings=Settings(), strangers=[registration]).run(2)
    assert scribbler.touched == 6


class Siege(RuleBasedStateMachine):
    """Hypothesis drives: what is asked, when time passes, when somebody halts or changes a mode."""

    @initialize(variant=st.sampled_from(sorted(VARIANTS)), seed=st.integers(0, 50))
    def begin(self, variant: str, seed: int) -> None:
        self.cook = Fuzzer("fuzzer", (), seed)
        self.asked: list[Recipe] = []
        self.cook.attack = self._attack  # type: ignore[method-assign]
        registration = Registration(self.cook, THIRD_PARTY_RANK, self.cook.title)
        self.campaign = Campaign(
            scenario="harbor",
            seed=seed,
            settings=VARIANTS[variant],
            strangers=[registration],
            calm=True,
        )
        for _ in range(6):  # until the forecaster has seen enough to speak
            self.campaign.turn()

    def _attack(self, snapshot: Snapshot, forecast: object) -> list[object]:
        return [self.cook.cook(recipe, snapshot) for recipe in self.asked]

    @rule(asked=st.lists(recipes(), min_size=1, max_size=12), cycles=st.integers(1, 4))
    def ask(self, asked: list[Recipe], cycles: int) -> None:
        self.asked = asked
        for _ in range(cycles):
            self.campaign.turn()

    @rule(halted=st.booleans())
    def halt(self, halted: bool) -> None:
        operator = self.campaign.operator
        operator.halted = halted
        position = len(self.campaign.cluster.log())
        operator.notices.append(Notice(position=position, halted=halted))

    @rule(
        agent=st.sampled_from(("fuzzer", "safety", "efficiency", "admission")),
        space=st.sampled_from(("", "/shop", "/research")),
        mode=st.sampled_from(Mode),
    )
    def change_mode(self, agent: str, space: str, mode: Mode) -> None:
        operator, key = self.campaign.operator, agent + space
        operator.modes[key] = mode
        position = len(self.campaign.cluster.log())
        operator.notices.append(Notice(position=position, key=key, mode=mode))

    @invariant()
    def record_is_clean(self) -> None:
        if hasattr(self, "campaign"):
            assert self.campaign.violations() == []
            assert self.campaign.tale.displaced == []


@pytest.mark.slow
def test_no_sequence_of_wishes_halts_and_modes_breaks_a_rule():
    run_state_machine_as_test(
        Siege, settings=hypothesis_settings(max_examples=10, stateful_step_count=12)
    )
