# SPDX-License-Identifier: Apache-2.0
"""Will a pod that is evicted find another place? Asked right before every eviction.

The check knows requests of every resource, taints, node selectors and required node affinity, hard
topology spread, host ports, quotas and our own gates. A pod that uses anything else that can keep
it from a node is not evicted, and the refusal names what it uses: a promise that the scheduler does
not keep is a pod less.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec

from pilothouse.act.fields import Json
from pilothouse.clients.asked import asked
from pilothouse.clients.quantity import parse
from pilothouse.clients.resources import Node, Pod, Quota
from pilothouse.clients.store import Store

RESERVED_SECONDS = 60.0  # until a replacement shows in the cache, its place is taken
KEEPS_OFF = ("NoSchedule", "NoExecute")
MOVABLE_VOLUMES = frozenset({"name", "configMap", "secret", "projected", "downwardAPI", "emptyDir"})
Amounts = dict[str, Decimal]


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place promised to a replacement that the cache does not show yet."""

    at: float
    node: str
    amounts: Amounts


@dataclass(slots=True)
class FitCheck:
    """Answers from the caches; remembers for a moment what it promised."""

    store: Store
    clock: Callable[[], float] = time.monotonic
    _reserved: list[Reservation] = field(default_factory=list)

    def objection(self, pod: Json) -> str:
        """Why the pod would find no place, or nothing; a place that is found is reserved."""
        now = self.clock()
        self._reserved = [r for r in self._reserved if now - r.at < RESERVED_SECONDS]
        why = unmodelled(pod) or self._held(pod)
        if why:
            return f"{_name(pod)} is not moved: {why}"
        try:
            wanted = requests_of(pod)
        except msgspec.ValidationError as error:
            return f"{_name(pod)} is not moved: what it asks for cannot be read: {error}"
        scene = Scene(self.store.nodes(), self.store.pods(), self._reserved)
        node, why = scene.place(pod, wanted)
        if not node:
            return f"{_name(pod)} would find no place: {why}"
        self._reserved.append(Reservation(now, node, wanted))
        return ""

    def _held(self, pod: Json) -> str:
        space = pod["metadata"]["namespace"]
        if self.store.gates().get(space):
            return f"new pods of {space} are held back now, its replacement would be, too"
        return over_quota(self.store.quotas(), space)


class Scene:
    """Nodes and who is on them, for one question."""

    def __init__(
        self, nodes: Sequence[Node], pods: Iterable[Pod], reserved: Iterable[Reservation] = ()
    ) -> None:
        self.nodes = {n.metadata.name: n for n in nodes}
        self.pods: dict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
                self.pods[pod.spec.node_name].append(pod)
        self.reserved = list(reserved)

    def place(self, pod: Json, wanted: Amounts) -> tuple[str, str]:
        """The first node that takes the pod, or the commonest reason why none does."""
        uid = pod["metadata"]["uid"]
        reasons: dict[str, int] = defaultdict(int)
        for name, node in self.nodes.items():
            why = self._why_not(node, pod, wanted, uid)
            if not why:
                return name, ""
            reasons[why] += 1
        if not reasons:
            return "", "there are no nodes"
        why, count = max(reasons.items(), key=lambda item: item[1])
        return "", f"{count} of {len(self.nodes)} nodes: {why}"

    def _why_not(self, node: Node, pod: Json, wanted: Amounts, uid: str) -> str:
        spec = pod["spec"]
        others = [p for p in self.pods[node.metadata.name] if p.metadata.uid != uid]
        return (
            _not_ready(node)
            or _untolerated(node, spec.get("tolerations") or [])
            or _unselected(node, spec)
            or self._no_room(node, others, wanted)
            or _port_taken(others, spec)
            or self._kept_apart(node, uid)
            or self._uneven(node, pod, uid)
        )

    def _no_room(self, node: Node, others: Sequence[Pod], wanted: Amounts) -> str:
        free = {name: parse(text) for name, text in node.status.allocatable.items()}
        for pod in others:
            for name, amount in _requests(pod).items():
                free[name] = free.get(name, Decimal(0)) - amount
        for one in self.reserved:
            if one.node == node.metadata.name:
                for name, amount in one.amounts.items():
                    free[name] = free.get(name, Decimal(0)) - amount
        for name, amount in wanted.items():
            if amount > free.get(name, Decimal(0)):
                return f"not enough {name}"
        return ""

    def _kept_apart(self, node: Node, uid: str) -> str:
        """Somebody in the same place may refuse company; whose, we do not work out."""
        for key, value, owner in self._loners:
            if owner != uid and node.metadata.labels.get(key) == value:
                return f"somebody on this {key} has required anti-affinity"
        return ""

    @cached_property
    def _loners(self) -> list[tuple[str, str, str]]:
        """(topology key, its value, pod uid) of every required anti-affinity."""
        found = []
        for name, pods in self.pods.items():
            labels = self.nodes[name].metadata.labels if name in self.nodes else {}
            for pod in pods:
                terms = pod.spec.affinity and pod.spec.affinity.pod_anti_affinity
                for term in terms.required if terms else ():
                    value = labels.get(term.topology_key, "")
                    found.append((term.topology_key, value, pod.metadata.uid))
        return found

    def _uneven(self, node: Node, pod: Json, uid: str) -> str:
        """Hard topology spread, counted over the nodes that the pod could go to at all."""
        for rule in pod["spec"].get("topologySpreadConstraints") or []:
            if rule.get("whenUnsatisfiable") != "DoNotSchedule":
                continue
            key = rule["topologyKey"]
            here = node.metadata.labels.get(key)
            if here is None:
                return f"no label {key}"
            counts: dict[str, int] = {}
            for name, other in self.nodes.items():
                domain = other.metadata.labels.get(key)
                if domain is None or _unselected(other, pod["spec"]):
                    continue
                matching = sum(
                    p.metadata.uid != uid
                    and p.metadata.namespace == pod["metadata"]["namespace"]
                    and p.metadata.deletion_timestamp is None
                    and selects(rule.get("labelSelector") or {}, p.metadata.labels)
                    for p in self.pods[name]
                )
                counts[domain] = counts.get(domain, 0) + matching
            own = selects(rule.get("labelSelector") or {}, pod["metadata"].get("labels") or {})
            if counts.get(here, 0) + int(own) - min(counts.values()) > int(rule["maxSkew"]):
                return f"spread over {key}"
        return ""


def _name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


# What is not modelled.


def unmodelled(pod: Json) -> str:
    """What a pod uses that the check knows nothing about; empty when it knows everything."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            return f"it uses required {kind}, which the fit check does not model"
    for volume in spec.get("volumes") or []:
        strange = sorted(set(volume) - MOVABLE_VOLUMES)
        if strange:
            return f"volume {volume['name']} is a {strange[0]}, which the fit check does not model"
    for rule in spec.get("topologySpreadConstraints") or []:
        strange = sorted({"minDomains", "matchLabelKeys"} & set(rule))
        policies = (rule.get("nodeAffinityPolicy", "Honor"), rule.get("nodeTaintsPolicy", "Ignore"))
        hard = rule.get("whenUnsatisfiable") == "DoNotSchedule"
        if hard and (strange or policies != ("Honor", "Ignore")):
            what = strange[0] if strange else "a node policy"
            return f"its topology spread uses {what}, which the fit check does not model"
    if spec.get("resourceClaims"):
        return "it uses resourceClaims, which the fit check does not model"
    if spec.get("schedulerName", "default-scheduler") != "default-scheduler":
        return f"scheduler {spec['schedulerName']} places it, by rules we do not know"
    return ""


def over_quota(quotas: Iterable[Quota], namespace: str) -> str:
    """A namespace above its quota could not make the replacement."""
    for quota in quotas:
        if quota.metadata.namespace != namespace:
            continue
        for name, limit in quota.status.hard.items():
            if parse(quota.status.used.get(name, "0")) > parse(limit):
                return f"quota {quota.metadata.name} is exceeded for {name}"
    return ""


# What is.


def requests_of(pod: Json) -> Amounts:
    """As the scheduler will count its replacement, whose status is yet to come."""
    return _requests(msgspec.convert({"spec": pod["spec"]}, Pod))


def _requests(pod: Pod) -> Amounts:
    return asked(pod) | {"pods": Decimal(1)}


def _not_ready(node: Node) -> str:
    ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
    return "" if ready and not node.spec.unschedulable else "not ready or cordoned"


def _untolerated(node: Node, tolerations: Sequence[Json]) -> str:
    for taint in node.spec.taints:
        if taint.effect in KEEPS_OFF and not any(_tolerates(t, taint) for t in tolerations):
            return f"taint {taint.key}"
    return ""


def _tolerates(toleration: Json, taint: Any) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if toleration.get("key") and toleration["key"] != taint.key:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.value


def _unselected(node: Node, spec: Json) -> str:
    labels = node.metadata.labels
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"node selector {key}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return ""
    terms = required.get("nodeSelectorTerms") or []
    fields = {"metadata.name": node.metadata.name}
    if any(_term_matches(term, labels, fields) for term in terms):
        return ""
    return "node affinity"


def _term_matches(term: Json, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions, by_field = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not by_field:
        return False  # an empty term selects nothing
    return all(_matches(e, labels) for e in expressions) and all(
        _matches(e, fields) for e in by_field
    )


def _matches(expression: Json, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    has = labels.get(key)
    match expression["operator"]:
        case "In":
            return has is not None and has in values
        case "NotIn":
            return has is None or has not in values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "Gt" | "Lt" as way:
            if has is None or not has.lstrip("-").isdigit() or len(values) != 1:
                return False
            return int(has) > int(values[0]) if way == "Gt" else int(has) < int(values[0])
    return False


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """A label selector; an empty one selects nothing here, as topology spread has it."""
    wanted, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not wanted and not expressions:
        return False
    return all(labels.get(k) == v for k, v in wanted.items()) and all(
        _matches(e, labels) for e in expressions
    )


def _port_taken(others: Sequence[Pod], spec: Json) -> str:
    wanted = {
        (port.get("protocol", "TCP"), port["hostPort"])
        for container in spec.get("containers") or []
        for port in container.get("ports") or []
        if port.get("hostPort")
    }
    if not wanted:
        return ""
    taken = {
        (port.protocol, port.host_port)
        for pod in others
        for container in pod.spec.containers
        for port in container.ports
        if port.host_port
    }
    clash = sorted(wanted & taken)
    return f"host port {clash[0][1]}" if clash else ""
