# SPDX-License-Identifier: Apache-2.0
"""What a pod asks of its node, as the scheduler counts it.

The rules are those of Kubernetes' own ``k8s.io/component-helpers/resource`` (``PodRequests``), with
the status of resized pods, as the scheduler reads them of pods that are bound. Whoever counts
otherwise sees room where the scheduler sees none. Left out: what a ResourceClaim takes of a node,
which is alpha.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from pilothouse.clients.quantity import parse
from pilothouse.clients.resources import Amounts, Container, ContainerStatus, Pod

Total = dict[str, Decimal]

POD_LEVEL = ("cpu", "memory")  # and huge pages: what a pod as a whole may ask for
HUGE_PAGES = "hugepages-"
SIDECAR = "Always"  # restart policy of an init container that goes on beside the others


def asked(pod: Pod) -> Total:
    """By resource, in whole units; names that nobody asks for are missing."""
    infeasible = _is_infeasible(pod)
    total = _of_containers(pod, infeasible)
    own = pod.status.resources
    for name, text in pod.spec.resources.requests.items():
        if name in POD_LEVEL or name.startswith(HUGE_PAGES):
            total[name] = parse(text)
            if own is not None:
                lists = (own.requests, pod.status.allocated_resources or {})
                effective = _effective(pod.spec.resources.requests, lists, infeasible)
                total[name] = effective.get(name, Decimal(0))
    _add(total, _parsed(pod.spec.overhead))
    return total


def _of_containers(pod: Pod, infeasible: bool) -> Total:
    """Containers and sidecars together, or the init step that takes most, whichever is more.

    While an init container runs, the sidecars before it run too.
    """
    statuses = {
        s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    }
    total: Total = {}
    for container in pod.spec.containers:
        _add(total, _of_container(container, statuses.get(container.name), infeasible))
    beside: Total = {}
    steps: Total = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == SIDECAR:
            own = _of_container(container, statuses.get(container.name), infeasible)
            _add(total, own)
            _add(beside, own)
        else:
            step = _parsed(container.resources.requests)
            _add(step, beside)
            _raise(steps, step)
    _raise(total, steps)
    return total


def _of_container(container: Container, status: ContainerStatus | None, infeasible: bool) -> Total:
    wanted = container.resources.requests
    if status is None or status.resources is None:
        return _parsed(wanted)
    if status.resources.requests == wanted == status.allocated_resources:
        return _parsed(wanted)  # nearly every pod: nothing was resized
    lists = (status.resources.requests, status.allocated_resources)
    return _effective(wanted, lists, infeasible)


def _effective(wanted: Amounts, real: Iterable[Amounts], infeasible: bool) -> Total:
    """The most of what is wanted, in force and set aside; a wish that cannot be met counts not."""
    most: Total = {} if infeasible else _parsed(wanted)
    for amounts in real:
        _raise(most, _parsed(amounts))
    return most


def _is_infeasible(pod: Pod) -> bool:
    pending = [c.reason for c in pod.status.conditions if c.type == "PodResizePending"]
    return pending[:1] == ["Infeasible"]


def _parsed(amounts: Amounts) -> Total:
    return {name: parse(text) for name, text in amounts.items()}


def _add(total: Total, more: Mapping[str, Decimal]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal(0)) + amount


def _raise(total: Total, other: Mapping[str, Decimal]) -> None:
    for name, amount in other.items():
        if name not in total or amount > total[name]:
            total[name] = amount
