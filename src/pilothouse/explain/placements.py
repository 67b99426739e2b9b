# SPDX-License-Identifier: Apache-2.0
"""Why a pod is where it is, from the record its scheduler left.

Nothing is worked out here: features, Q values, contributions and the flip are the recorded ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pilothouse.errors import PilothouseError, UserError
from pilothouse.journal import Ingested, JournalReader

PREFIX = "pod/"
PATHS = {
    "scored": "the policy scored every candidate",
    "overridden": "a suggestion published for this pod replaced the policy's scores",
    "single": "only one node was feasible, so nobody scored",
    "hint": "the scheduler reused its own result for an equal pod",
    "nominated": "preemption had made room there",
    "fallback": "the fallback scored in the policy's place",
    "skipped": "the plugin skipped, and the default plugins decided",
}
LATENCY, LATENCY_KNOWN = 6, 7  # places in the recorded features; see pilothouse.policy


def is_about_a_pod(which: str) -> bool:
    return which.startswith(PREFIX) and which.count("/") == 2


def find(journals: Iterable[Path], which: str) -> dict[str, Any] | None:
    """The newest record of a pod's placement in the first journal that has one."""
    _, namespace, name = which.split("/")
    for path in journals:
        found = None
        try:
            for entry in JournalReader(path).entries():
                if isinstance(entry.record, Ingested):
                    found = _matching(entry.record.content, namespace, name) or found
        except PilothouseError:
            if found is None:
                continue  # another journal may be whole
        if found is not None:
            return found
    return None


def _matching(content: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any] | None:
    items = content.get("placements")
    for item in reversed(items if isinstance(items, list) else []):
        if isinstance(item, dict) and (item.get("namespace"), item.get("pod")) == (namespace, name):
            return item
    return None


def missing(which: str) -> UserError:
    return UserError(
        f"No journal here has a placement of {which}. The scheduler reports placements to the "
        "scorer: run it with --journal FILE and give that file as --journal."
    )


def text(item: Mapping[str, Any]) -> str:
    """The record as lines: what, how, why, what lost, and what would have flipped it."""
    path = str(item.get("path", ""))
    lines = [
        f"Placement {item.get('namespace')}/{item.get('pod')} on {item.get('node')}, "
        f"{str(item.get('at', ''))[:19]}, {item.get('mode')}, profile {item.get('profile')}",
        _line("Because", PATHS.get(path, path) + (f" ({item['why']})" if item.get("why") else "")),
    ]
    if item.get("policy"):
        sampled = f"{item.get('candidates')} candidates of {item.get('nodes')} nodes"
        lines.append(_line("Policy", f"{item['policy']}, {sampled}, table {_age(item)}"))
    limits = [
        f"{kind} {item[key]:g} ms"
        for kind, key in (("soft", "soft_limit_ms"), ("hard", "hard_limit_ms"))
        if isinstance(item.get(key), int | float)
    ]
    if limits:
        lines.append(_line("Limits", ", ".join(limits)))
    chosen = item.get("chosen")
    shares = (item.get("reasons") or {}).get("contributions") or {}
    if isinstance(chosen, dict):
        word = "Chosen" if item.get("best", False) else "Taken"
        lines.append(_line(word, _node(chosen, shares)))
    for other in item.get("alternatives") or ():
        lines.append(_line("Lost", _node(other, shares)))
    if (item.get("reasons") or {}).get("flip"):
        lines.append(_line("Margin", str(item["reasons"]["flip"])))
    return "\n".join(lines)


def _line(head: str, rest: str) -> str:
    return f"{head:<10}{rest}"


def _age(item: Mapping[str, Any]) -> str:
    age = item.get("table_age_seconds")
    return f"{age:.1f} s old" if isinstance(age, int | float) else "of unknown age"


def _node(one: Mapping[str, Any], shares: Mapping[str, Any]) -> str:
    features = one.get("features") or []
    parts = [f"Q {one.get('q', 0):.3f}", f"score {one.get('score')}"]
    if len(features) > LATENCY_KNOWN and features[LATENCY_KNOWN]:
        parts.append(f"latency {features[LATENCY]:.1f} ms")
    for objective, value in (shares.get(str(one.get("node"))) or {}).items():
        parts.append(f"{objective} {value:+.2f}")
    return f"{one.get('node')} ({', '.join(parts)})"
