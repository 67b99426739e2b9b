# SPDX-License-Identifier: Apache-2.0
"""The API server's audit log as a witness: what an account wrote and had no business writing."""

from __future__ import annotations

from typing import Any

from pilothouse.testing.drill import audit

__all__ = ["ACCOUNT", "audit", "by", "strange_writes"]

ACCOUNT = "system:serviceaccount:pilothouse-system:pilothouse-observer"
READS = ("get", "list", "watch")
# Group, resource, namespace, name and verbs of everything that is ours to write; "*" is any.
OURS = (
    ("", "events", "*", "*", ("create",)),
    ("coordination.k8s.io", "leases", "pilothouse-system", "pilothouse", ("create", "update")),
)


def by(events: list[dict[str, Any]], account: str = ACCOUNT) -> list[dict[str, Any]]:
    """What an account asked for; whoever showed no valid token has no name."""
    return [event for event in events if event["user"].get("username") == account]


def strange_writes(events: list[dict[str, Any]], account: str = ACCOUNT) -> list[str]:
    """Writes by the account that are not ours to make, refused ones included: wanting counts."""
    return [
        f"{e['verb']} {e.get('objectRef', {})} -> {e.get('responseStatus', {}).get('code')}"
        for e in by(events, account)
        if e["verb"] not in READS and not _is_ours(e)
    ]


def _is_ours(event: dict[str, Any]) -> bool:
    what = event.get("objectRef", {})
    if what.get("subresource"):
        return False
    seen = (what.get("apiGroup", ""), what.get("resource"), what.get("namespace"), what.get("name"))
    return any(
        event["verb"] in verbs
        and all(allowed in ("*", found) for allowed, found in zip(row, seen, strict=True))
        for *row, verbs in OURS
    )
