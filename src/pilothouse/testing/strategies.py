# SPDX-License-Identifier: Apache-2.0
"""Random values for properties: wishes of every kind, sane, odd and broken."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from pilothouse.domain import ActionKind
from pilothouse.testing.hostile import NUMBERS, Recipe

KEYS = ("factor", "frequency_permille", "state", "decision", "avoid", "replicas", "restores")
RECIPES_PER_DRAW = 20

# Hypothesis prints what it draws, and the longest number of all cannot be printed.
ODD = tuple(10**400 if type(n) is int and n > 10**400 else n for n in NUMBERS)

odd = st.one_of(
    st.sampled_from(ODD),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.binary(max_size=4),
)
sane_payloads = st.fixed_dictionaries(
    {},
    optional={
        "factor": st.floats(0, 1),
        "frequency_permille": st.integers(1, 1000),
        "state": st.sampled_from(("asleep", "awake")),
        "decision": st.sampled_from(("admit", "queue", "deprioritize", "reject")),
        "avoid": st.sampled_from(("", "worker-0", "worker-99")),
    },
)
payloads = st.one_of(
    sane_payloads,
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), odd, max_size=20),
    odd,
)


def recipes() -> st.SearchStrategy[Recipe]:
    """Mostly well formed, so that many get past the first checks."""
    return st.builds(
        Recipe,
        kind=_mostly(st.sampled_from(tuple(ActionKind))),
        about=st.sampled_from(("node", "pod", "workload", "namespace", "nothing")),
        aim=st.integers(0, 10_000),
        payload=st.one_of(sane_payloads, sane_payloads, payloads),
        score=_mostly(st.floats(0, 1)),
        priority=_mostly(st.integers(-(2**53), 2**53)),
        patience=_mostly(st.integers(-60, 3_600)),
        claim=st.sampled_from(("", "", "", "", "safety", "janitor", "efficiency", "nobody")),
    )


def _mostly(sane: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(sane, sane, sane, sane, odd)


def book(seed: int, count: int) -> list[Recipe]:
    """So many recipes; the same seed gives the same book."""
    found: list[Recipe] = []

    @seeded(seed)
    @settings(
        max_examples=max(count // RECIPES_PER_DRAW, 1),
        phases=(Phase.generate,),
        database=None,
        derandomize=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(recipes(), min_size=RECIPES_PER_DRAW, max_size=RECIPES_PER_DRAW))
    def draw(some: list[Recipe]) -> None:
        found.extend(some)

    draw()
    return found[:count]
