# SPDX-License-Identifier: Apache-2.0
"""Placements that the scheduler reports: reasoned about once, then durable in a journal.

The plugin sends the numbers it decided by; here the same policy says what would have flipped the
choice, while it is still the policy that made it. After that nothing is worked out again: an
explanation reads the record.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse import __version__
from pilothouse.journal import Ingested, Journal, Run
from pilothouse.policy import FEATURES, Policy
from pilothouse.policy.reasons import contributions, flip
from pilothouse.scorer.suggest import flip_sentence

KIND = "placements"
REMEMBERED = 2000
LATENCY = FEATURES.index("latency_ms")
LATENCY_KNOWN = FEATURES.index("latency_known")


class Placements:
    """The latest placements in memory, and all of them in a journal when there is one."""

    def __init__(self, journal: Path | None, *, cluster: str) -> None:
        self._journal = None if journal is None else Journal.open(journal)
        self._lock = threading.Lock()
        self._count = 0
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
            batch[KIND] = [with_reasons(item, policy) for item in batch[KIND]]
        with self._lock:
            self._remember(batch)
            self._count += 1
            if self._journal is None:
                return self._count
            return self._journal.append(Ingested(source=source, content=batch))

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


def with_reasons(item: Any, policy: Policy | None) -> Any:
    """The record with contributions and the flip, when it was this policy that decided."""
    if not isinstance(item, dict) or policy is None or item.get("policy") != policy.version:
        return item
    rows = _rows(item)
    pooled = _vector(_list(item.get("pooled_mean")) + _list(item.get("pooled_max")))
    width = policy.network.head[0].weight.shape[0] // 3
    if rows is None or pooled is None or pooled.shape != (2 * width,):
        return item
    names, features = rows
    shares = contributions(policy.network, features, pooled, np.ones(len(features), np.bool_))
    reasons: dict[str, Any] = {
        "contributions": {
            node: {objective: round(float(values[row]), 4) for objective, values in shares.items()}
            for row, node in enumerate(names)
        }
    }
    q = policy.network.judge(policy.network.encode(features), pooled)
    if len(names) > 1:
        rival = 1 + int(np.argmax(q[1:]))
        found = flip(policy.network, features[0], pooled, float(q[rival]))
        if q[0] > q[rival] and found is None:
            reasons["flip"] = f"no latency or CPU share of {names[0]} alone would have changed it"
        elif q[0] > q[rival] and found is not None:
            consequence = f"{names[rival]} would have been chosen"
            reasons["flip"] = flip_sentence(found, names[0], consequence)
    return item | {"reasons": reasons}


def _rows(
    item: Mapping[str, Any],
) -> tuple[list[str], np.ndarray[Any, np.dtype[np.float32]]] | None:
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


def _vector(value: Any) -> np.ndarray[Any, np.dtype[np.float32]] | None:
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
