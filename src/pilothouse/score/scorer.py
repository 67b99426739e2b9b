# SPDX-License-Identifier: Apache-2.0
"""What an action was worth, from the state after its settle window.

In the simulator the effect of an action is the difference to a *fork*: the same cluster, with the
same arrivals and faults and every other action, but without this one. A fork is kept in step: the
later writes of the real cluster are executed on it too. On a real cluster there is no fork: there
the window after the action is held against as long a time before it. That is what was observed and
not what the action caused, and ``overlapped`` says when not even that can be told apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from pilothouse.domain import Action, Result, Reward, Status, Toll, Write
from pilothouse.domain.outcome import Receipt
from pilothouse.settings import ScoreSettings


class Forkable(Protocol):
    """A cluster that can be copied with its future."""

    @property
    def clock_seconds(self) -> int: ...

    def advance(self, seconds: int) -> None: ...

    def execute(self, write: Write, agent: str) -> Receipt: ...

    def toll(self) -> Toll: ...

    def fork(self) -> Self: ...

    def close(self) -> None:
        """Give a fork back; it may live in another process."""
        ...


@dataclass(slots=True)
class _Window:
    """One action waiting for its result."""

    action: Action
    fork: Forkable | None
    start: Toll
    due_seconds: int
    overlapped: bool = False
    usual: Toll | None = None  # of as long a time, going by what was before; where there is no fork


class Scorer:
    """Keeps one window per executed action and turns it into a result when it ends."""

    def __init__(self, settings: ScoreSettings) -> None:
        self._settings = settings
        self._windows: list[_Window] = []
        self._past: deque[tuple[int, Toll]] = deque()  # cluster clock and toll, up to one window

    @property
    def awaiting(self) -> list[Action]:
        """Executed actions whose window has not ended."""
        return [window.action for window in self._windows]

    def before(self, cluster: Forkable, actions: Sequence[Action]) -> Forkable | None:
        """Copy the cluster just before it is acted on; None when there is nothing to compare."""
        scored = any(not action.restores for action in actions)
        return cluster.fork() if self._settings.forks and scored else None

    def after(
        self,
        cluster: Forkable,
        base: Forkable | None,
        done: Sequence[tuple[Action, Write, Receipt]],
    ) -> None:
        """Open a window for each action that had an effect, and keep older forks in step."""
        executed = [(a, w) for a, w, r in done if r.status is Status.DONE]
        actions = list({a.id: a for a, _ in executed if not a.restores}.values())
        now = cluster.clock_seconds
        earlier = [window.action for window in self._windows if window.fork is None]
        for window in self._windows:
            _replay(window.fork, executed, now)
            window.overlapped |= any(_overlaps(window.action, action) for action in actions)
        start = cluster.toll()
        if base is not None and not actions:
            base.close()
        for index, action in enumerate(actions):
            fork = base if base is None or index == len(actions) - 1 else base.fork()
            self._windows.append(
                _Window(
                    action=action,
                    fork=fork,
                    start=start,
                    due_seconds=now + self._settings.settle_seconds,
                    # A fork has the earlier actions too; what is only observed has their tails.
                    overlapped=any(
                        _overlaps(action, o) for o in (*actions, *earlier) if o.id != action.id
                    ),
                    usual=None if fork is not None else self._usual(start, now),
                )
            )
            _replay(fork, [(a, w) for a, w in executed if a.id != action.id], now)

    def take_up(self, actions: Sequence[Action], cluster: Forkable) -> None:
        """Await results again after a restart; the forks are gone, so they will be observed."""
        now, toll = cluster.clock_seconds, cluster.toll()
        due = now + self._settings.settle_seconds
        self._windows += [_Window(action, None, toll, due, overlapped=True) for action in actions]

    def _usual(self, start: Toll, now: int) -> Toll | None:
        """What a window costs, going by the time before; None while nothing is known of it."""
        since, then = self._past[0] if self._past else (now, start)
        if now <= since:
            return None
        return start.minus(then).times(self._settings.settle_seconds / (now - since))

    def _remember(self, cluster: Forkable, now: int) -> None:
        self._past.append((now, cluster.toll()))
        while len(self._past) > 1 and self._past[1][0] <= now - self._settings.settle_seconds:
            self._past.popleft()

    def due(self, cluster: Forkable) -> Iterator[Result]:
        """The results whose windows have ended by now."""
        now = cluster.clock_seconds
        if not self._settings.forks:
            self._remember(cluster, now)
        ended = [w for w in self._windows if w.due_seconds <= now]
        self._windows = [w for w in self._windows if w.due_seconds > now]
        if ended:
            toll = cluster.toll()
            for window in ended:
                yield self._result(window, toll.minus(window.start), now)

    def _result(self, window: _Window, spent: Toll, now: int) -> Result:
        effect, worth = None, None
        if window.fork is not None:
            window.fork.advance(now - window.fork.clock_seconds)
            effect = worth = spent.minus(window.fork.toll().minus(window.start))
            window.fork.close()
        elif window.usual is not None:
            worth = spent.minus(window.usual)
        return Result(
            action=window.action.id,
            settled_seconds=now,
            method="fork" if effect is not None else "observed",
            toll=spent,
            effect=effect,
            reward=None if worth is None else reward(worth, self._settings.weights),
            overlapped=window.overlapped,
            sentence=_sentence(effect, spent, window.usual, self._settings.settle_seconds),
        )


def reward(effect: Toll, weights: dict[str, float]) -> Reward:
    """Savings are positive: pod minutes for A, kilojoules for B, waiting minutes for C."""
    return Reward(
        safety=round(
            -weights["safety"] * (effect.failed_pod_seconds + effect.violation_seconds) / 60, 3
        ),
        efficiency=round(-weights["efficiency"] * effect.energy_joules / 1000, 3),
        admission=round(-weights["admission"] * effect.waiting_pod_seconds / 60, 3),
    )


def _replay(fork: Forkable | None, executed: Sequence[tuple[Action, Write]], now: int) -> None:
    if fork is None:
        return
    fork.advance(now - fork.clock_seconds)
    for action, write in executed:
        fork.execute(write, action.agent)


def _overlaps(one: Action, other: Action) -> bool:
    mine = {one.target, *(w.target for w in one.writes)}
    return any(w.target in mine for w in other.writes) or other.target in mine


def _sentence(effect: Toll | None, spent: Toll, usual: Toll | None, settle: int) -> str:
    if effect is None:
        before = "nothing is known of the time before"
        if usual is not None:
            before = (
                f"{usual.failed_pod_seconds:.0f} and {usual.violation_seconds:.0f} s "
                "by the time before"
            )
        return (
            f"after {settle} s: {spent.failed_pod_seconds:.0f} failed-pod seconds, "
            f"{spent.violation_seconds:.0f} s of violations (observed; {before})"
        )
    return (
        f"after {settle} s: failed-pod seconds {effect.failed_pod_seconds:+.0f}, "
        f"violation seconds {effect.violation_seconds:+.0f}, "
        f"waiting pod seconds {effect.waiting_pod_seconds:+.0f}, "
        f"energy {effect.energy_joules / 1000:+.1f} kJ modelled "
        "(simulated, against a fork without the action)"
    )
