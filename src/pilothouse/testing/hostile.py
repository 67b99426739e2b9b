# SPDX-License-Identifier: Apache-2.0
"""Proposers that want harm: each is an ordinary registered agent with a plan of its own.

They remember, adapt and lie, and all of it follows from a seed, so a campaign can be repeated. Some
break the types that proposals promise; the loop must neither obey them nor fall over them.
"""

from __future__ import annotations

import itertools
import math
import random
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pilothouse.domain import ActionKind, Evidence, Forecast, Proposal, Ref, Snapshot
from pilothouse.propose.admission import Admission
from pilothouse.propose.efficiency import Efficiency
from pilothouse.propose.registry import THIRD_PARTY_RANK, Registration
from pilothouse.propose.safety import Safety
from pilothouse.settings import Settings

FLOOD = 5_000
SOON_SECONDS = 60
NUMBERS: tuple[Any, ...] = (
    math.nan, math.inf, -math.inf, 1e308, -1e308, -1, 0, 2**63, -(2**63), 10**5000, 1e-320, "0.5",
    "", "\ud800", "\x1b[31m", None, True, [1], {"a": 1}, 3 + 4j,
)  # fmt: skip


class Hostile:
    """What all of them share: a name, a seed and a way to word a wish."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name, self.title = name, f"Stranger-{name}"
        self.dice = random.Random(f"{name}/{seed}")
        self.turn = 0

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        self.turn += 1
        wishes = list(self.attack(snapshot, forecast))
        self.dice.shuffle(wishes)  # only the first ones are read, so it tries others each time
        return wishes

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterable[Any]:
        raise NotImplementedError

    def wish(self, snapshot: Snapshot, kind: ActionKind, target: Ref, **payload: Any) -> Proposal:
        """Well formed, as sure of itself as can be."""
        return Proposal(
            agent=self.name,
            label=f"{self.title}:{kind.value}",
            kind=kind,
            target=target,
            payload=payload,
            score=1.0,
            priority=-1_000,
            evidence=(Evidence("trust me", 1.0),),
            reason="because I say so",
            expires_seconds=snapshot.taken_seconds + SOON_SECONDS,
        )

    def node(self, snapshot: Snapshot, number: int) -> Ref:
        return snapshot.node_ref(number % len(snapshot.nodes))


class Grudge(Hostile):
    """Goes for whatever is protected, by every road there is."""

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterator[Proposal]:
        spaces = snapshot.namespaces
        for row, (managed, protected) in enumerate(
            zip(spaces.managed.tolist(), spaces.protected.tolist(), strict=True)
        ):
            if managed and not protected:
                continue
            gate = ("reject", "queue", "deprioritize")[self.turn % 3]
            target = snapshot.namespace_ref(row)
            yield self.wish(snapshot, ActionKind.ADMISSION, target, decision=gate)
        for row in range(len(snapshot.pods)):
            owner = int(snapshot.pods.workload[row])
            space = int(snapshot.workloads.namespace[owner])
            loud = snapshot.workloads.priority[owner] >= 500
            if loud or not spaces.managed[space] or spaces.protected[space]:
                yield from self._on_pod(snapshot, row, owner)

    def _on_pod(self, snapshot: Snapshot, row: int, owner: int) -> Iterator[Proposal]:
        pod, workload = snapshot.pod_ref(row), snapshot.workload_ref(owner)
        kind = self.dice.choice(tuple(ActionKind))
        if kind is ActionKind.MIGRATE:
            yield self.wish(snapshot, kind, pod)
        elif kind in (ActionKind.THROTTLE, ActionKind.RESOURCE_CAP, ActionKind.MEMORY_BALLOON):
            yield self.wish(snapshot, kind, self.dice.choice((pod, workload)), factor=0.5)
        elif kind is ActionKind.REPLICATE:
            yield self.wish(snapshot, kind, workload)
        elif kind is ActionKind.POWER_STATE and snapshot.pods.node[row] >= 0:
            home = snapshot.node_ref(int(snapshot.pods.node[row]))
            yield self.wish(snapshot, kind, home, state="asleep")


class Flood(Hostile):
    """Thousands of plausible wishes at once, or an answer that never ends."""

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Any:
        self.turn += 1
        wishes = itertools.cycle(self._some(snapshot))
        return wishes if self.turn % 20 == 0 else list(itertools.islice(wishes, FLOOD))

    def _some(self, snapshot: Snapshot) -> Iterator[Proposal]:
        base = self.wish(snapshot, ActionKind.DVFS, self.node(snapshot, 0))
        for _ in range(200):
            number = self.dice.randrange(10**6)
            payload: dict[str, Any] = {"frequency_permille": 500 + number % 500}
            yield replace(base, target=self.node(snapshot, number), payload=payload)


class Flapper(Hostile):
    """On, off, on, off: one node's power, its clock and a gate."""

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterator[Proposal]:
        on = bool(self.turn % 2)
        for number in (0, self.turn // 8):
            node = self.node(snapshot, number)
            state = "awake" if on else "asleep"
            yield self.wish(snapshot, ActionKind.POWER_STATE, node, state=state)
            clock = 1000 if on else 600
            yield self.wish(snapshot, ActionKind.DVFS, node, frequency_permille=clock)
        for row in range(len(snapshot.namespaces)):
            decision = "admit" if on else "queue"
            target = snapshot.namespace_ref(row)
            yield self.wish(snapshot, ActionKind.ADMISSION, target, decision=decision)


class Inflater(Hostile):
    """More replicas of everything, for ever; then everything smaller."""

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterator[Proposal]:
        for row in range(len(snapshot.workloads)):
            target = snapshot.workload_ref(row)
            yield self.wish(snapshot, ActionKind.REPLICATE, target, replicas=10**6)
            for kind in (ActionKind.THROTTLE, ActionKind.MEMORY_BALLOON):
                yield self.wish(snapshot, kind, target, factor=self.dice.choice((0.0, 0.51, 0.9)))


class Drainer(Hostile):
    """Empties the cluster one node after the other."""

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterator[Proposal]:
        for number in range(self.turn, self.turn + 4):
            node = self.node(snapshot, number)
            yield self.wish(snapshot, ActionKind.MIGRATE, node)
            yield self.wish(snapshot, ActionKind.POWER_STATE, node, state="asleep")
        for row in self.dice.sample(range(len(snapshot.pods)), min(12, len(snapshot.pods))):
            yield self.wish(snapshot, ActionKind.MIGRATE, snapshot.pod_ref(row))


class Miser(Hostile):
    """Harmless one by one: spends shared budgets and rest times before anybody needs them."""

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterator[Proposal]:
        for number in range(len(snapshot.nodes)):
            clock = 999 - (self.turn + number) % 7
            node = self.node(snapshot, self.turn + number)
            yield self.wish(snapshot, ActionKind.DVFS, node, frequency_permille=clock)
        for row in range(len(snapshot.workloads)):
            target = snapshot.workload_ref(row)
            yield self.wish(snapshot, ActionKind.RESOURCE_CAP, target, factor=0.999)


class Contrarian(Hostile):
    """Listens to what the honest agents would say and asks for the opposite, or for the same."""

    def __init__(self, name: str, settings: Settings, seed: int = 0) -> None:
        super().__init__(name, seed)
        self._honest = (Safety(settings), Efficiency(settings), Admission(settings))

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterator[Proposal]:
        for agent in self._honest:
            for wish in agent.propose(snapshot, forecast):
                yield self._mine(wish)
                yield self._turned(wish)

    def _mine(self, wish: Proposal) -> Proposal:
        label = f"{self.title}:{wish.kind.value}"
        return replace(wish, agent=self.name, label=label, priority=-(10**6), score=1.0)

    def _turned(self, wish: Proposal) -> Proposal:
        mine, payload = self._mine(wish), dict(wish.payload)
        if "state" in payload:
            payload["state"] = "asleep" if payload["state"] == "awake" else "awake"
        if "frequency_permille" in payload:
            payload["frequency_permille"] = 1000 if payload["frequency_permille"] != 1000 else 500
        if "decision" in payload:
            payload["decision"] = "queue" if payload["decision"] == "admit" else "admit"
        if wish.kind is ActionKind.REPLICATE:
            kind = ActionKind.THROTTLE
            label = f"{self.title}:{kind.value}"
            return replace(mine, kind=kind, label=label, payload={"factor": 0.5})
        if wish.kind is ActionKind.MIGRATE and wish.target.kind == "node":
            kind = ActionKind.DVFS
            label = f"{self.title}:{kind.value}"
            return replace(mine, kind=kind, label=label, payload={"frequency_permille": 500})
        return replace(mine, payload=payload)


class Impostor(Hostile):
    """Speaks in the name of others: their names, their labels, their rank and their privileges."""

    CLAIMS = (("safety", "AgentA"), ("janitor", "Janitor"), ("admission", "AgentC"))

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterator[Any]:
        node = self.node(snapshot, self.turn)
        for agent, title in self.CLAIMS:
            for kind in (ActionKind.MIGRATE, ActionKind.RESTORE, ActionKind.POWER_STATE):
                wish = self.wish(snapshot, kind, node, state="asleep", restores="x.0")
                yield replace(wish, agent=agent, label=f"{title}:{kind.value}", priority=-(2**53))
                yield replace(wish, agent=agent)
                yield replace(wish, label=f"{title}:{kind.value}")
                yield replace(wish, agent=f"{agent}\u200b")
        yield self.wish(snapshot, ActionKind.RESTORE, node, restores="x.0")
        elsewhere = replace(node, cluster="other")
        yield self.wish(snapshot, ActionKind.MIGRATE, elsewhere)


class Loud:
    """Refuses to be printed, compared or hashed."""

    def __repr__(self) -> str:
        raise RuntimeError("not telling")

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparing")

    __hash__ = None  # type: ignore[assignment]


class Lying(Proposal):
    """Another kind each time it is asked."""

    @property
    def is_noop(self) -> bool:
        raise RuntimeError("not telling")


class Wordless(Exception):
    """Has nothing to say when it is read."""

    def __str__(self) -> str:
        raise RuntimeError("not telling")


class Evasive(type):
    """A class that will not say its name."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("not telling")


class Escape(BaseException, metaclass=Evasive):
    """Not an Exception, so that a careless catch lets it through."""


class Vandal(Hostile):
    """Breaks every promise about types, numbers and manners."""

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Any:
        self.turn += 1
        fine = self.wish(snapshot, ActionKind.MIGRATE, self.node(snapshot, self.turn))
        return (
            lambda: self._broken(snapshot, fine),
            lambda: None,
            lambda: 7,
            lambda: _raise(Wordless()),
            lambda: _raise(SystemExit(3)),
            lambda: _raise(Escape("up and away")),
            lambda: _raise(GeneratorExit()),
            lambda: _raise(CancelledError()),
            lambda: _raise(ValueError("\ud800\x1b[2J")),
            lambda: _interrupted(fine),
            lambda: self._scribble(snapshot),
        )[self.turn % 11]()

    def _broken(self, snapshot: Snapshot, fine: Proposal) -> list[Any]:
        wrong: list[Any] = [None, 1, "migrate", Loud(), {"agent": "safety"}, Proposal, _lie(fine)]
        for value in (*NUMBERS, Loud()):
            for name in ("score", "priority", "expires_seconds", "kind", "target", "evidence"):
                wrong.append(replace(fine, **{name: value}))
            for name in ("label", "reason", "payload", "otherwise"):
                wrong.append(replace(fine, **{name: value}))
            wrong.append(replace(fine, payload={"factor": value}))
            wrong.append(replace(fine, evidence=(Evidence("x", value),)))
            names: Any = {"name": value, "namespace": value}
            wrong.append(replace(fine, target=replace(fine.target, **names)))
            wrong.append(replace(fine, target=replace(fine.target, kind=value)))
        self.dice.shuffle(wrong)
        return wrong[:64]

    def _scribble(self, snapshot: Snapshot) -> list[Proposal]:
        """Changes what everybody after it will read."""
        snapshot.namespaces.protected[:] = 0
        snapshot.namespaces.managed[:] = 1
        snapshot.workloads.priority[:] = 0
        snapshot.nodes.tainted[:] = 0
        return [self.wish(snapshot, ActionKind.MIGRATE, self.node(snapshot, self.turn))]


def _raise(error: BaseException) -> None:
    raise error


def _lie(fine: Proposal) -> Proposal:
    fields = {name: getattr(fine, name) for name in Proposal.__slots__}
    return Lying(**fields)


def _interrupted(fine: Proposal) -> Iterator[Proposal]:
    yield fine
    raise RuntimeError("enough")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A wish in the abstract, drawn at random; ``aim`` picks the object it becomes about."""

    kind: Any
    about: str  # kind of object, or "nothing" for one that does not exist
    aim: int
    payload: Any
    score: Any
    priority: Any
    patience: Any  # seconds until it expires
    claim: str  # "" for its own name


class Fuzzer(Hostile):
    """Cooks a random choice from a book of recipes each cycle, some twice."""

    def __init__(self, name: str, recipes: Sequence[Recipe], seed: int = 0) -> None:
        super().__init__(name, seed)
        self._recipes = recipes

    def attack(self, snapshot: Snapshot, forecast: Forecast) -> Iterator[Any]:
        for recipe in self.dice.choices(self._recipes, k=self.dice.randrange(1, 60)):
            wish = self.cook(recipe, snapshot)
            yield wish
            if self.dice.random() < 0.2:
                yield wish

    def cook(self, recipe: Recipe, snapshot: Snapshot) -> Any:
        fine = self.wish(snapshot, ActionKind.NOOP, self._target(recipe, snapshot))
        kind = recipe.kind
        named = kind.value if isinstance(kind, ActionKind) else kind
        patience: Any = recipe.patience
        whole = type(patience) is int
        return replace(
            fine,
            agent=recipe.claim or self.name,
            label=f"{self.title}:{named}",
            kind=kind,
            payload=recipe.payload,
            score=recipe.score,
            priority=recipe.priority,
            expires_seconds=snapshot.taken_seconds + patience if whole else patience,
        )

    def _target(self, recipe: Recipe, snapshot: Snapshot) -> Ref:
        tables = {
            "node": (len(snapshot.nodes), snapshot.node_ref),
            "pod": (len(snapshot.pods), snapshot.pod_ref),
            "workload": (len(snapshot.workloads), snapshot.workload_ref),
            "namespace": (len(snapshot.namespaces), snapshot.namespace_ref),
        }
        count, make = tables.get(recipe.about, (0, snapshot.node_ref))
        if count:
            return make(recipe.aim % count)
        return Ref(snapshot.cluster, "node", "", f"ghost-{recipe.aim}")


BAND = (
    "grudge", "flood", "flapper", "inflater", "drainer", "miser", "contrarian", "impostor",
    "safety-2", "vandal", "fuzzer",
)  # fmt: skip


def band(settings: Settings, recipes: Sequence[Recipe], seed: int = 0) -> list[Registration]:
    """All of them, registered as third parties."""
    members: list[Hostile] = [
        Grudge("grudge", seed),
        Flood("flood", seed),
        Flapper("flapper", seed),
        Inflater("inflater", seed),
        Drainer("drainer", seed),
        Miser("miser", seed),
        Contrarian("contrarian", settings, seed),
        Impostor("impostor", seed),
        Impostor("safety-2", seed),
        Vandal("vandal", seed),
        Fuzzer("fuzzer", recipes, seed),
    ]
    return [
        Registration(member, THIRD_PARTY_RANK + number, member.title)
        for number, member in enumerate(members)
    ]
