# SPDX-License-Identifier: Apache-2.0
"""The kube-scheduler's extender protocol, for clusters whose scheduler cannot be changed.

Works with ``nodeCacheCapable`` on (names come in and go out) and off (whole nodes do). What it does
not know it lets pass with a middling priority: an extender that fails must not keep pods pending.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from pydantic import ValidationError

from pilothouse import policy
from pilothouse.clients.resources import Node, Pod
from pilothouse.errors import BackendError
from pilothouse.policy.machines import Machine, Request, machines_of, request_of
from pilothouse.scorer.board import Board
from pilothouse.scorer.shapes import ExtenderArguments, ExtenderFiltered, HostPriority, NodeIn
from pilothouse.scorer.suggest import favored, score

MIDDLE = 5


def filter_nodes(board: Board, given: ExtenderArguments, *, enforce: bool) -> ExtenderFiltered:
    """All nodes pass, but with ``enforce`` those known to be beyond the pod's hard limit."""
    request = _request(given)
    names = _names(given)
    failed: dict[str, str] = {}
    if enforce and request.hard_limit_ms == request.hard_limit_ms:
        for node, measured in board.latencies(request.user).items():
            if node in names and measured.milliseconds > request.hard_limit_ms:
                failed[node] = (
                    f"{measured.milliseconds:.1f} ms from the user, above the pod's hard limit "
                    f"of {request.hard_limit_ms:g} ms"
                )
    if given.nodes is not None and given.nodenames is None:
        items = [i for i in _items(given) if _name(i) not in failed]
        return ExtenderFiltered(nodes=given.nodes | {"items": items}, failedNodes=failed)
    return ExtenderFiltered(nodenames=[n for n in names if n not in failed], failedNodes=failed)


def prioritize(board: Board, given: ExtenderArguments) -> list[HostPriority]:
    """Priorities of 0 to 10 by rank."""
    names = _names(given)
    request = _request(given)
    scored = score(board, request, names=names, given=_unwatched(board, given))
    row_of = {machine.name: row for row, machine in enumerate(scored.machines)}
    ranks = policy.to_ranks(scored.q, scored.candidates)
    uid = str(((given.pod or {}).get("metadata") or {}).get("uid") or "")
    # Nobody but the caller may know a node; then there is no reason to leave it out.
    free = [name for name in names if name not in row_of or scored.candidates[row_of[name]]]
    published = favored(board, uid, free)
    if published is not None:
        values = np.asarray([published.get(name, 0) for name in names], np.float32)
        ranked = policy.to_ranks(values, np.asarray([name in published for name in names]))
        return [HostPriority(host=n, score=int(r)) for n, r in zip(names, ranked, strict=True)]
    return [
        HostPriority(host=name, score=int(ranks[row_of[name]]) if name in row_of else MIDDLE)
        for name in names
    ]


# Now and not at first use: msgspec must not learn about one class in two threads at a time.
_LEARNED = [msgspec.json.Decoder(kind) for kind in (Node, Pod)]


def _unwatched(board: Board, given: ExtenderArguments) -> list[NodeIn]:
    """Whole nodes that came with the request and that the board does not watch."""
    watched = {machine.name for machine in board.machines()}
    nodes = []
    for item in _items(given):
        try:
            nodes.append(msgspec.convert(item, Node))
        except msgspec.ValidationError:
            continue  # not a node: it gets the middling priority
    found = [m for m in _safe_machines(nodes) if m.name and m.name not in watched]
    return [node for machine in found if (node := _as_given(machine)) is not None]


def _as_given(machine: Machine) -> NodeIn | None:
    """None for a node that no cluster has: a name too long, less than nothing of a resource."""
    try:
        return NodeIn(
            name=machine.name,
            pod_capacity=machine.pod_capacity,
            cpu_allocatable=machine.cpu_allocatable,
            memory_allocatable=machine.memory_allocatable,
            disk_allocatable=machine.disk_allocatable,
        )
    except ValidationError:
        return None


def _safe_machines(nodes: list[Node]) -> list[Machine]:
    made: list[Machine] = []
    for node in nodes:
        try:
            made += machines_of([node], [])
        except BackendError:
            continue  # a quantity nobody can read
    return made


def _request(given: ExtenderArguments) -> Request:
    try:
        return request_of(msgspec.convert(given.pod or {}, Pod))
    except (msgspec.ValidationError, BackendError):
        return Request()


def _items(given: ExtenderArguments) -> list[dict[str, Any]]:
    items = (given.nodes or {}).get("items")
    return [i for i in items if isinstance(i, dict)] if isinstance(items, list) else []


def _name(item: dict[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _names(given: ExtenderArguments) -> list[str]:
    if given.nodenames is not None:
        return given.nodenames
    return [name for item in _items(given) if (name := _name(item))]
