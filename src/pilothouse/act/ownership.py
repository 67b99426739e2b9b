# SPDX-License-Identifier: Apache-2.0
"""Who set a field, from what the API server itself keeps about it.

A field that a controller owns is not ours to change: the two would fight. Only what a person's tool
set, what we set, or what nobody set is open to us.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from pilothouse.act.fields import Json, Path
from pilothouse.domain import Verb

OURS = "pilothouse:"  # pilothouse:<epoch>:<holder>:<intent>
JANITORS = "pilothouse-janitor:"  # pilothouse-janitor:<action>
# What people use by hand; everything else may be a controller that will set it back.
PEOPLE = ("kubectl", "kubectl-*", "helm", "before-first-apply", "k9s", "Lens", f"{JANITORS}*")
# A pod's resources come from the template, by way of whoever made the pod.
MAKERS = ("kube-controller-manager", "kube-scheduler", "kubelet")


def sign(epoch: int, holder: str, intent: str) -> str:
    """The field manager of a write: which leader sent it, which the fence judges by, and why."""
    return f"{OURS}{epoch}:{holder}:{intent}"


def is_tracked(thing: Json) -> bool:
    """Whether the API server keeps owners of this object: it stops once nobody owns anything."""
    return bool(thing["metadata"].get("managedFields"))


def managers(thing: Json, path: Path) -> list[str]:
    """Who claims a field, the latest entry first."""
    found = []
    for entry in thing["metadata"].get("managedFields") or []:
        if _holds(entry.get("fieldsV1") or {}, path):
            found.append((str(entry.get("time", "")), str(entry.get("manager", ""))))
    return [manager for _, manager in sorted(found, reverse=True)]


def _holds(fields: Any, path: Path) -> bool:
    for step in path:
        if not isinstance(fields, dict) or step not in fields:
            return False
        fields = fields[step]
    return True


def foreign_owner(thing: Json, paths: Sequence[Path], verb: Verb) -> str:
    """The controller that owns one of these fields; empty when they are open to us."""
    allowed: tuple[str, ...] = (*PEOPLE, f"{OURS}*")
    if verb in (Verb.CPU_LIMIT, Verb.MEMORY_REQUEST):
        allowed += MAKERS
    for path in paths:
        for manager in managers(thing, path):
            if not any(fnmatchcase(manager, pattern) for pattern in allowed):
                return manager
    return ""


def our_intent(thing: Json, paths: Sequence[Path]) -> str:
    """The intent that set these fields last; empty when somebody else did."""
    for path in paths:
        for manager in managers(thing, path):
            if manager.startswith(OURS):
                return manager.rpartition(":")[2]
    return ""
