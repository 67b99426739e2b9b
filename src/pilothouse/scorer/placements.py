# SPDX-License-Identifier: Apache-2.0
"""Placements that the scheduler reports: reasoned about once, then durable in a journal.

The plugin sends the numbers it decided by; here the same policy says what would have flipped the
choice, while it is still the policy that made it. After that nothing is worked out again: an
explanation reads the record.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse import __version__
from pilothouse.errors import JournalError
from pilothouse.journal import Ingested, Journal, Run
from pilothouse.policy import FEATURES, Policy
from pilothouse.policy.choice import TIE
from pilothouse.policy.network import Floats, Network
from pilothouse.policy.reasons import Flip, contributions, flips
from pilothouse.scorer.suggest import flip_sentence
from pilothouse.settings import JournalSettings

_log = logging.getLogger(__name__)
KIND = "placements"
REMEMBERED = 2000
LATENCY = FEATURES.index("latency_ms")
LATENCY_KNOWN = FEATURES.index("latency_known")


class Placements:
    """The latest placements in memory, and all of them in a journal when there is one."""

    def __init__(
        self, journal: Path | None, *, cluster: str, settings: JournalSettings | None = None
    ) -> None:
        self._journal = None if journal is None else Journal.open(journal, settings=settings)
        self._lock = threading.Lock()
        self._count = 0
        self._trouble = ""  # why the last rotation failed
        self.dropped = 0
        self.latest: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        if self._journal is not None:
            run = Run(
                run_id=f"{cluster}-placements",
                cluster=cluster,
                scenario=KIND,
                seed=0,
                version=__version__,
            )
            self._journal.begin(run)

    def take(self, source: str, content: Mapping[str, Any], policy: Policy | None) -> int:
        """Make a batch durable; its number in the journal comes back."""
        batch = dict(content)
        if batch.get("kind") == KIND and isinstance(batch.get("placements"), list):
            batch[KIND] = with_reasons(batch[KIND], policy)
        with self._lock:
            self._count += 1
            number = self._count
            if self._journal is not None:
                number = self._journal.append(Ingested(source=source, content=batch))
                self._rotate(self._journal)
            self._remember(batch)
        return number

    def _rotate(self, journal: Journal) -> None:
        """A file that is full or old is closed. The batch is durable whatever becomes of that, and
        who sent it must not be told otherwise: it would send it again."""
        try:
            if journal.rotation_due:
                journal.rotate()
        except JournalError as error:
            if str(error) != self._trouble:  # it is tried again with every batch, and said once
                _log.warning("The journal of placements was not rotated. %s", error)
            self._trouble = str(error)

    def _remember(self, batch: Mapping[str, Any]) -> None:
        dropped = batch.get("dropped")
        if isinstance(dropped, int):
            self.dropped = max(self.dropped, dropped)
        items = batch.get(KIND)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                self.latest.append(item)

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Numbers:
    """What one record was decided by."""

    place: int  # in its batch
    names: list[str]  # the chosen node first
    features: Floats  # (names, features)
    pooled: Floats


def with_reasons(items: Sequence[Any], policy: Policy | None) -> list[Any]:
    """The records with contributions and the flip, where it was this policy that decided.

    Hundreds a second may come in while the cluster has better things to do, so records of as many
    nodes are reasoned about together.
    """
    made = list(items)
    if policy is None:
        return made
    alike: dict[int, list[_Numbers]] = {}
    for place, item in enumerate(items):
        numbers = _numbers(place, item, policy)
        if numbers is not None:
            alike.setdefault(len(numbers.names), []).append(numbers)
    for group in alike.values():
        for numbers, reasons in zip(group, _reasons(policy.network, group), strict=True):
            made[numbers.place] = items[numbers.place] | {"reasons": reasons}
    return made


def _numbers(place: int, item: Any, policy: Policy) -> _Numbers | None:
    if not isinstance(item, dict) or item.get("policy") != policy.version:
        return None
    rows = _rows(item)
    pooled = _vector(_list(item.get("pooled_mean")) + _list(item.get("pooled_max")))
    width = policy.network.head[0].weight.shape[0] // 3
    if rows is None or pooled is None or pooled.shape != (2 * width,):
        return None
    return _Numbers(place=place, names=rows[0], features=rows[1], pooled=pooled)


def _reasons(network: Network, group: Sequence[_Numbers]) -> Iterator[dict[str, Any]]:
    """Reasons of records that name the same number of nodes."""
    features = np.stack([one.features for one in group])  # (records, nodes, features)
    pooled = np.stack([one.pooled for one in group])
    shares = contributions(network, features, pooled, np.ones(features.shape[:2], np.bool_))
    q = network.judge(network.encode(features), pooled)
    rivals = 1 + q[:, 1:].argmax(axis=-1) if q.shape[1] > 1 else None
    found: list[Flip | None] = [None] * len(group)
    won = np.zeros(len(group), np.bool_)
    if rivals is not None:
        rival_q = q[np.arange(len(group)), rivals]
        won = q[:, 0] >= rival_q - TIE
        found = flips(network, features[:, 0], pooled, rival_q, won)
    for at, one in enumerate(group):
        reasons: dict[str, Any] = {
            "contributions": {
                node: {name: round(float(values[at, row]), 4) for name, values in shares.items()}
                for row, node in enumerate(one.names)
            }
        }
        if rivals is not None and won[at]:
            reasons["flip"] = _flip_text(found[at], one.names[0], one.names[rivals[at]])
        yield reasons


def _flip_text(found: Flip | None, chosen: str, rival: str) -> str:
    if found is None:
        return f"no latency or CPU share of {chosen} alone would have changed it"
    return flip_sentence(found, chosen, f"{rival} would have been chosen")


def _rows(item: Mapping[str, Any]) -> tuple[list[str], Floats] | None:
    """The chosen node and the alternatives: names and features, the chosen one first."""
    chosen, others = item.get("chosen"), _list(item.get("alternatives"))
    listed = [one for one in [chosen, *others] if isinstance(one, dict)]
    if not isinstance(chosen, dict):
        return None
    vectors = [_vector(one.get("features")) for one in listed]
    if any(v is None or v.shape != (len(FEATURES),) for v in vectors):
        return None
    names = [str(one.get("node", "")) for one in listed]
    return names, np.stack([v for v in vectors if v is not None])


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _vector(value: Any) -> Floats | None:
    try:
        made = np.asarray(value, np.float32)
    except (TypeError, ValueError, OverflowError):
        return None
    return made if made.ndim == 1 and np.isfinite(made).all() else None


def chosen_latency(item: Mapping[str, Any]) -> float | None:
    """The latency of the chosen node when it was chosen, if it was known."""
    rows = _rows(item)
    if rows is None or not rows[1][0][LATENCY_KNOWN]:
        return None
    return float(rows[1][0][LATENCY])
