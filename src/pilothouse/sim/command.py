# SPDX-License-Identifier: Apache-2.0
"""The command log: every write a simulated cluster was asked for, refused ones too.

It is a witness. It never dedupes, it knows nothing of guards or budgets, and each line carries
what an outside checker needs to judge it without asking anybody else.
"""

from __future__ import annotations

from dataclasses import dataclass

from pilothouse.domain import Ref
from pilothouse.scenarios import StimulusKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One write and its answer."""

    tick: int
    seconds: int  # cluster clock
    intent: str
    agent: str
    verb: str
    target: str
    namespace: str  # of the pod or workload, or the namespace itself; empty for a node
    workload: str  # of the pod, or the workload itself
    node: str  # of the pod, or the node itself
    value: int
    original: int  # what the field really was just before
    status: str
    detail: str
    managed: int  # 1 when the namespace's owner opted in
    protected: int  # 1 when the namespace must not be touched
    priority: int  # of the workload
    baseline: int  # replicas as the workload's owner declared
    limit_declared: int  # the field's value as the owner declared, for limits and requests
    node_pods: int  # pods bound to the node just before
    nodes: int  # nodes that exist
    pods: int  # pods that exist
    evictable: int = 0  # 1 when the pod's owner lets it be moved; pods a drain of the node evicts
    failed: int = 0  # 1 when the pod is lost already
    peak: int = 0  # MiB, the pod's highest working set
    closed: int = 0  # of the pods a drain evicts: in namespaces that are protected or unmanaged
    top_priority: int = 0  # among the pods a drain evicts
    spaces: tuple[str, ...] = ()  # namespaces of the pods a drain evicts
    draining: int = 0  # other nodes under a drain that has pods left to evict


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveStimulus:
    """What is being exercised now, and which pressure it should cause."""

    kind: StimulusKind
    target: Ref
    since_seconds: int
    until_seconds: int
    pressure: str  # "low load", "memory", "errors", "unready", "latency", "queue", "unschedulable"
    # "cpu", "load swings" or "undone actions"


PRESSURE = {
    StimulusKind.IDLE: "low load",
    StimulusKind.LIGHT: "low load",
    StimulusKind.MEMORY_GROWTH: "memory",
    StimulusKind.NODE_DEGRADATION: "errors",
    StimulusKind.SUDDEN_NODE_LOSS: "unready",
    StimulusKind.CPU_SATURATION: "latency",
    StimulusKind.QUEUE_SURGE: "queue",
    StimulusKind.UNSCHEDULABLE_SELECTOR: "unschedulable",
    StimulusKind.NOISY_NEIGHBOR: "cpu",
    StimulusKind.FLAPPING_LOAD: "load swings",
    StimulusKind.RIVAL_CONTROLLER: "undone actions",
}
