# SPDX-License-Identifier: Apache-2.0
"""Placements that a real scheduler made, frozen: what was seen, what was chosen, what came next.

The scheduler's plugin reports every bind with the features of the chosen node and of the best
others, and the scorer keeps them in a journal. Freezing copies them into one file of plain
arrays with a digest, so that a fine-tuning can be repeated to the same weights while the journal
grows on. A row's next state is the next bind: after departures, with the next pod and its nodes.
A record holds three nodes at most; of a larger cluster that is what there is to learn from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import ArtifactBroken, InvalidSetting, MissingFile
from pilothouse.journal import Ingested, JournalReader
from pilothouse.learn.placement.course import POD_CAPACITY, UNKNOWN_MS
from pilothouse.learn.placement.placed import Placed
from pilothouse.learn.placement.rewards import Reward, worth
from pilothouse.policy import FEATURES, NODE_FEATURES, POD_FEATURES

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
FEWEST = 20  # binds; fewer teach nothing and cannot be held out from
HELD_OUT = 0.2  # the newest, never trained on
LEAST_SHARE = 1e-6
_NODE = {name: place for place, name in enumerate(NODE_FEATURES)}
_POD = {name: place for place, name in enumerate(POD_FEATURES)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorded:
    """Binds in their order; nodes are sorted by name, so that their place says nothing."""

    nodes: F4  # (binds, nodes, node features)
    pod: F4  # (binds, pod features)
    valid: NDArray[np.bool_]  # (binds, nodes)
    choice: NDArray[np.int32]  # (binds,)

    @property
    def count(self) -> int:
        return len(self.choice)

    @property
    def features(self) -> F4:
        """(binds, nodes, features), as a network takes them."""
        shape = (*self.nodes.shape[:2], len(POD_FEATURES))
        pod = np.broadcast_to(self.pod[:, None, :], shape) * self.valid[..., None]
        return np.concatenate([self.nodes, pod], axis=-1)

    @property
    def digest(self) -> str:
        """Of all the numbers; the same set has the same digest."""
        whole = hashlib.sha256()
        for one in fields(self):
            array = np.ascontiguousarray(getattr(self, one.name))
            whole.update(f"{one.name}{array.shape}".encode() + array.tobytes())
        return whole.hexdigest()

    def rows(self, which: slice) -> Recorded:
        return Recorded(**{f.name: getattr(self, f.name)[which] for f in fields(self)})

    def split(self) -> tuple[Recorded, Recorded]:
        """What to train on, and the newest fifth to judge by."""
        first = int(self.count * (1 - HELD_OUT))
        return self.rows(slice(0, first)), self.rows(slice(first, None))

    def worth(self, reward: Reward) -> F8:
        """(binds, nodes): what each recorded node would have been worth; -inf where none is."""
        choices = np.eye(self.valid.shape[1], dtype=np.bool_)
        columns = [worth(reward, self._placed(chosen & self.valid))[0] for chosen in choices]
        values: F8 = np.where(self.valid, np.stack(columns, axis=-1), -np.inf)
        return values

    def _placed(self, chosen: NDArray[np.bool_]) -> Placed:
        """The placement in shares of the largest node: a record has no other unit."""

        def node(name: str) -> F8:
            return self.nodes[..., _NODE[name]].astype(np.float64)

        def pod(name: str) -> F8:
            return self.pod[..., _POD[name]].astype(np.float64)

        cpu = np.maximum(pod("cpu_request_share"), LEAST_SHARE)
        memory = np.maximum(pod("memory_request_share"), LEAST_SHARE)
        cpu_room = _room(cpu, node("cpu_requested_share"), node("cpu_after_share"))
        memory_room = _room(memory, node("memory_requested_share"), node("memory_after_share"))
        return Placed(
            exists=self.valid,
            feasible=self.valid & (node("feasible") > 0),
            chosen=chosen,
            counted=(node("active") > 0).astype(np.int64),
            pods=node("pods_share") * POD_CAPACITY,
            pod_capacity=np.full(self.valid.shape, POD_CAPACITY),
            cpu=node("cpu_requested_share") * cpu_room,
            cpu_room=cpu_room,
            memory=node("memory_requested_share") * memory_room,
            memory_room=memory_room,
            disk=np.zeros(self.valid.shape),
            disk_room=np.ones(self.valid.shape),
            idle_permille=1000 * node("idle_power_share"),
            latency_ms=np.where(node("latency_known") > 0, node("latency_ms"), UNKNOWN_MS),
            pod_cpu=cpu,
            pod_memory=memory,
            pod_disk=np.zeros(self.count),
            soft_ms=pod("soft_limit_ms"),
            hard_ms=pod("hard_limit_ms"),
        )


def _room(ask: F8, before: F8, after: F8) -> F8:
    """A node's room in units of the largest one, from what the pod adds to its share."""
    added = after - before
    return np.where(added > LEAST_SHARE, ask[:, None] / np.maximum(added, LEAST_SHARE), 1.0)


def from_journal(path: Path, *, fewest: int = FEWEST) -> Recorded:
    """Every bind of a journal that a policy looked at."""
    binds = [bind for bind in map(_bind, _reported(path)) if bind is not None]
    if len(binds) < max(fewest, 1):
        raise InvalidSetting(
            f"{path} holds {len(binds)} placements with a policy's features; {fewest} is the "
            "least to learn from. Run the scheduler with the scorer's --journal FILE for longer."
        )
    width = max(len(rows) for rows, _ in binds)
    many = len(NODE_FEATURES)
    nodes = np.zeros((len(binds), width, many), np.float32)
    valid = np.zeros((len(binds), width), np.bool_)
    for at, (rows, _) in enumerate(binds):
        nodes[at, : len(rows)] = rows[:, :many]
        valid[at, : len(rows)] = True
    return Recorded(
        nodes=nodes,
        pod=np.stack([rows[0, many:] for rows, _ in binds]),
        valid=valid,
        choice=np.array([choice for _, choice in binds], np.int32),
    )


def _reported(path: Path) -> Iterator[Mapping[str, Any]]:
    for entry in JournalReader(path).entries():
        if isinstance(entry.record, Ingested):
            items = entry.record.content.get("placements")
            yield from (item for item in items or () if isinstance(item, dict))


def _bind(item: Mapping[str, Any]) -> tuple[F4, int] | None:
    """Features by node and the place of the chosen one; None where no policy looked, or one that
    saw disk in place of memory."""
    chosen, others = item.get("chosen"), item.get("alternatives") or []
    if not isinstance(chosen, dict) or item.get("beside_cpu", "memory") != "memory":
        return None
    listed = sorted(
        [one for one in [chosen, *others] if isinstance(one, dict)],
        key=lambda one: str(one.get("node")),
    )
    try:
        rows = np.array([one["features"] for one in listed], np.float32)
    except (KeyError, TypeError, ValueError):
        return None
    if rows.ndim != 2 or rows.shape[1] != len(FEATURES) or not np.isfinite(rows).all():
        return None
    return rows, listed.index(chosen)


def freeze(recorded: Recorded, path: Path) -> str:
    """Write the set as plain arrays; its digest comes back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {f.name: getattr(recorded, f.name) for f in fields(recorded)}
    head = np.array(json.dumps({"features": FEATURES, "digest": recorded.digest}))
    partial = path.with_name(f".{path.name}.partial.npz")
    np.savez(partial, **arrays, head=head)
    partial.replace(path)
    return recorded.digest


def thaw(path: Path) -> Recorded:
    """A frozen set; one that was changed is refused."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        head = json.loads(str(arrays.pop("head")))
        recorded = Recorded(**arrays)
    except FileNotFoundError:
        raise MissingFile(f"There are no recorded placements at {path}.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactBroken(f"The recorded placements {path} cannot be read: {error}.") from None
    if head.get("digest") != recorded.digest or tuple(head.get("features", ())) != FEATURES:
        raise ArtifactBroken(
            f"The recorded placements {path} are not what was frozen: their digest or their "
            "features differ. Freeze them again from the journal."
        )
    return recorded
