# SPDX-License-Identifier: Apache-2.0
"""What each verb reads and changes on a Kubernetes object, as pure functions over its JSON.

A field knows the value an object has now, in the verb's own unit, and the smallest patch that gives
it another one. Patches carry the object's uid and resourceVersion, so that a namesake or a changed
object is never written. Nothing here sends anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pilothouse.clients.keys import (
    AVOID_KEY,
    FREQUENCY_KEY,
    GATE_PREFIX,
    POWER_KEY,
    TAINT_KEY,
    permille,
)
from pilothouse.clients.quantity import mebibytes, millicores, parse
from pilothouse.domain import Gate, Verb

Json = dict[str, Any]
Path = tuple[str, ...]

FULL_CLOCK = 1000
DRAINS = {"": 0, "draining": 1, "draining-to-sleep": 2, "asleep": 0}
GATE_WORDS = {"": Gate.OPEN} | {gate.name.lower(): gate for gate in Gate}


class UnfitError(Exception):
    """The object cannot take this change; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Whose change it is, for the fields that can carry it."""

    action: str
    expires_unix: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """How one verb reads and changes its object."""

    read: Callable[[Json, str], int]  # the object, and the key within it where there is one
    change: Callable[[Json, str, int, Mark], Json]  # the patch, metadata aside
    owned: Callable[[Json, str], Sequence[Path]]  # where managedFields would name an owner
    subresource: str = ""

    @property
    def is_strategic(self) -> bool:
        """Whether lists are merged by name: a pod's containers are."""
        return self.subresource == "/resize"


def field_of(verb: Verb, kind: str) -> Field:
    """The field a verb writes on an object of this kind."""
    if verb is Verb.SCALE and kind == "HorizontalPodAutoscaler":
        return MINIMUM
    return FIELDS[verb]


def preconditions(thing: Json) -> Json:
    """The very object that was read, and nothing has changed on it since."""
    meta = thing["metadata"]
    return {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}


# Replicas.


def _replicas(thing: Json, _key: str) -> int:
    return int(thing.get("spec", {}).get("replicas", 1))


def _scaled(thing: Json, _key: str, value: int, _mark: Mark) -> Json:
    return {"spec": {"replicas": value}}


def _minimum(thing: Json, _key: str) -> int:
    return int(thing.get("spec", {}).get("minReplicas", 1))


def _raised(thing: Json, _key: str, value: int, _mark: Mark) -> Json:
    most = int(thing.get("spec", {}).get("maxReplicas", 1))
    if value > most:
        raise UnfitError(f"its autoscaler allows at most {most} replicas, asked for {value}")
    return {"spec": {"minReplicas": value}}


# Nodes.


def _has_taint(key: str) -> Callable[[Json, str], int]:
    return lambda thing, _key: int(our_taint(thing, key) is not None)


def our_taint(thing: Json, key: str) -> Json | None:
    taints = thing.get("spec", {}).get("taints") or []
    return next((t for t in taints if t.get("key") == key), None)


def _tainted(key: str) -> Callable[[Json, str, int, Mark], Json]:
    def change(thing: Json, _key: str, value: int, mark: Mark) -> Json:
        others = [t for t in thing.get("spec", {}).get("taints") or [] if t.get("key") != key]
        ours = {"key": key, "value": mark.action, "effect": "NoSchedule"}
        return {"spec": {"taints": [*others, ours] if value else others}}

    return change


def annotation(thing: Json, key: str) -> str:
    return str((thing["metadata"].get("annotations") or {}).get(key, ""))


def _drain(thing: Json, _key: str) -> int:
    return DRAINS.get(annotation(thing, POWER_KEY), 0)


def _drained(thing: Json, _key: str, value: int, _mark: Mark) -> Json:
    words = {0: None, 1: "draining", 2: "draining-to-sleep"}
    return {"metadata": {"annotations": {POWER_KEY: words[value]}}}


def _awake(thing: Json, _key: str) -> int:
    return int(annotation(thing, POWER_KEY) != "asleep")


def _powered(thing: Json, _key: str, value: int, _mark: Mark) -> Json:
    return {"metadata": {"annotations": {POWER_KEY: None if value else "asleep"}}}


def frequency(thing: Json, _key: str = "") -> int:
    return permille(annotation(thing, FREQUENCY_KEY))


def _clocked(thing: Json, _key: str, value: int, mark: Mark) -> Json:
    text = None if value >= FULL_CLOCK else f"{value} until {mark.expires_unix or 0}"
    return {"metadata": {"annotations": {FREQUENCY_KEY: text}}}


# Pods.


def _containers(thing: Json) -> list[Json]:
    return list(thing["spec"].get("containers") or [])


def _amounts(container: Json, group: str) -> Mapping[str, str]:
    return (container.get("resources") or {}).get(group) or {}


def cpu_limit(thing: Json, _key: str = "") -> int:
    """The sum of limits; 0 as soon as one container has none."""
    limits = [_amounts(c, "limits").get("cpu") for c in _containers(thing)]
    return 0 if None in limits else sum(millicores(text) for text in limits if text)


def memory_request(thing: Json, _key: str = "") -> int:
    return sum(mebibytes(_amounts(c, "requests").get("memory", "0")) for c in _containers(thing))


def _check_resizable(thing: Json, resource: str) -> None:
    sidecars = [
        c["name"]
        for c in thing["spec"].get("initContainers") or []
        if c.get("restartPolicy") == "Always"
    ]
    if sidecars:
        raise UnfitError(f"it has a sidecar ({sidecars[0]}), whose share of the limit is unknown")
    for container in _containers(thing):
        for policy in container.get("resizePolicy") or []:
            if policy["resourceName"] == resource and policy["restartPolicy"] != "NotRequired":
                raise UnfitError(
                    f"container {container['name']} would be restarted: its resizePolicy for "
                    f"{resource} is {policy['restartPolicy']}"
                )


def is_guaranteed(thing: Json) -> bool:
    return bool(thing.get("status", {}).get("qosClass") == "Guaranteed")


def shares(parts: Sequence[int], total: int) -> list[int]:
    """``total`` split as ``parts`` are, in whole units that add up to it."""
    whole = sum(parts)
    done, out = 0, []
    for index, _ in enumerate(parts):
        upto = total * sum(parts[: index + 1]) // whole
        out.append(max(upto - done, 1))
        done = upto
    return out


def _slowed(thing: Json, _key: str, value: int, _mark: Mark) -> Json:
    _check_resizable(thing, "cpu")
    containers = _containers(thing)
    limits = [millicores(_amounts(c, "limits").get("cpu", "0")) for c in containers]
    if 0 in limits:
        raise UnfitError("a container has no CPU limit; one that is added could not be removed")
    changed = []
    for container, limit in zip(containers, shares(limits, value), strict=True):
        request = millicores(_amounts(container, "requests").get("cpu", "0"))
        wanted: Json = {"limits": {"cpu": f"{limit}m"}}
        if is_guaranteed(thing):
            wanted["requests"] = {"cpu": f"{limit}m"}
        elif request > limit:
            raise UnfitError(
                f"container {container['name']} requests {request} m, more than the new limit "
                f"of {limit} m"
            )
        changed.append({"name": container["name"], "resources": wanted})
    return _resized(changed)


def _ballooned(thing: Json, _key: str, value: int, _mark: Mark) -> Json:
    _check_resizable(thing, "memory")
    containers = _containers(thing)
    before = [_bytes(_amounts(c, "requests").get("memory", "0")) for c in containers]
    if 0 in before:
        raise UnfitError("a container requests no memory; one that is added could not be removed")
    changed = []
    for container, old, new in zip(containers, before, shares(before, value * 2**20), strict=True):
        wanted: Json = {"requests": {"memory": _size(new)}}
        limit = _bytes(_amounts(container, "limits").get("memory", "0"))
        if limit:
            wanted["limits"] = {"memory": _size(new if limit == old else limit * new // old)}
        changed.append({"name": container["name"], "resources": wanted})
    return _resized(changed)


def _bytes(text: str) -> int:
    return int(parse(text))


def _size(amount: int) -> str:
    return f"{amount // 2**20}Mi" if amount % 2**20 == 0 else str(amount)


def _resized(changed: Sequence[Json]) -> Json:
    """For a strategic merge, which finds containers by their names."""
    return {"spec": {"containers": list(changed)}}


def saved_resources(thing: Json) -> Json:
    """What a pod's owner gave each container, kept word for word in the ticket."""
    return {c["name"]: c.get("resources") or {} for c in _containers(thing)}


def with_saved(thing: Json, saved: Mapping[str, Json], resource: str) -> Json:
    """The patch that gives back what was saved of one resource, exactly."""
    changed = []
    for container in _containers(thing):
        old = saved.get(container["name"], {})
        groups = {
            group: {resource: old[group][resource]}
            for group in ("limits", "requests")
            if resource in (old.get(group) or {})
        }
        changed.append({"name": container["name"], "resources": groups})
    return _resized(changed)


def _resource_paths(resource: str, *groups: str) -> Callable[[Json, str], Sequence[Path]]:
    def paths(thing: Json, _key: str) -> Sequence[Path]:
        names = [f'k:{{"name":"{c["name"]}"}}' for c in _containers(thing)]
        return [
            ("f:spec", "f:containers", name, "f:resources", f"f:{group}", f"f:{resource}")
            for name in names
            for group in groups
        ]

    return paths


# Namespaces: their gate is an annotation of an account of ours.


def _gate(thing: Json, key: str) -> int:
    return int(GATE_WORDS.get(annotation(thing, f"{GATE_PREFIX}{key}"), Gate.OPEN))


def _gated(thing: Json, key: str, value: int, _mark: Mark) -> Json:
    word = None if value == Gate.OPEN else Gate(value).name.lower()
    return {"metadata": {"annotations": {f"{GATE_PREFIX}{key}": word}}}


def _annotation_path(key: str) -> Callable[[Json, str], Sequence[Path]]:
    return lambda _thing, _key: [("f:metadata", "f:annotations", f"f:{key}")]


def _nobody(_thing: Json, _key: str) -> Sequence[Path]:
    return []


MINIMUM = Field(
    read=_minimum, change=_raised, owned=lambda _thing, _key: [("f:spec", "f:minReplicas")]
)
FIELDS: dict[Verb, Field] = {
    Verb.SCALE: Field(
        read=_replicas,
        change=_scaled,
        owned=lambda _thing, _key: [("f:spec", "f:replicas")],
        subresource="/scale",
    ),
    Verb.TAINT: Field(read=_has_taint(TAINT_KEY), change=_tainted(TAINT_KEY), owned=_nobody),
    Verb.AVOID: Field(read=_has_taint(AVOID_KEY), change=_tainted(AVOID_KEY), owned=_nobody),
    Verb.DRAIN: Field(read=_drain, change=_drained, owned=_annotation_path(POWER_KEY)),
    Verb.POWER: Field(read=_awake, change=_powered, owned=_annotation_path(POWER_KEY)),
    Verb.FREQUENCY: Field(read=frequency, change=_clocked, owned=_annotation_path(FREQUENCY_KEY)),
    Verb.CPU_LIMIT: Field(
        read=cpu_limit,
        change=_slowed,
        owned=_resource_paths("cpu", "limits"),
        subresource="/resize",
    ),
    Verb.MEMORY_REQUEST: Field(
        read=memory_request,
        change=_ballooned,
        owned=_resource_paths("memory", "requests"),
        subresource="/resize",
    ),
    Verb.GATE: Field(
        read=_gate,
        change=_gated,
        owned=lambda _thing, key: [("f:metadata", "f:annotations", f"f:{GATE_PREFIX}{key}")],
    ),
}
