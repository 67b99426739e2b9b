# SPDX-License-Identifier: Apache-2.0
"""The few fields of Kubernetes objects that we read; everything else is skipped while decoding.

Trimmed structs keep a cache of fifty thousand pods small and its updates cheap. A field that is
missing in an answer has the value Kubernetes gives it, so code above never asks whether it is
there.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

import msgspec

from pilothouse.clients.keys import SYSTEM


class Trimmed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of every struct here: unknown fields are ignored, names are Kubernetes' own."""


class Owner(Trimmed, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()


class Condition(Trimmed, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None


Amounts = dict[str, str]


class Taint(Trimmed, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Address(Trimmed, frozen=True, kw_only=True):
    type: str = ""
    address: str = ""


class KubeletEndpoint(Trimmed, frozen=True, kw_only=True):
    port: int = msgspec.field(default=0, name="Port")


class Daemons(Trimmed, frozen=True, kw_only=True):
    kubelet_endpoint: KubeletEndpoint = KubeletEndpoint()


class NodeSpec(Trimmed, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Trimmed, frozen=True, kw_only=True):
    allocatable: Amounts = {}
    capacity: Amounts = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[Address, ...] = ()
    daemon_endpoints: Daemons = Daemons()


class Node(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Trimmed, frozen=True, kw_only=True):
    requests: Amounts = {}
    limits: Amounts = {}


class Port(Trimmed, frozen=True, kw_only=True):
    host_port: int = 0
    protocol: str = "TCP"


class Container(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    ports: tuple[Port, ...] = ()
    resources: Resources = Resources()
    restart_policy: str = ""  # "Always" on an init container makes it a sidecar


class Terminated(Trimmed, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    finished_at: datetime | None = None


class Waiting(Trimmed, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Running(Trimmed, frozen=True, kw_only=True):
    started_at: datetime | None = None


class ContainerState(Trimmed, frozen=True, kw_only=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: Resources | None = None  # in force; beside the wish while a resize is under way
    allocated_resources: Amounts = {}  # set aside by the kubelet


class Named(Trimmed, frozen=True, kw_only=True):
    name: str = ""


class Present(Trimmed, frozen=True, kw_only=True):
    """Something that is there; what it says is nothing to us."""


class Volume(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    empty_dir: Present | None = None
    host_path: Present | None = None


class AffinityTerm(Trimmed, frozen=True, kw_only=True):
    topology_key: str = ""


class AntiAffinity(Trimmed, frozen=True, kw_only=True):
    required: tuple[AffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Trimmed, frozen=True, kw_only=True):
    pod_anti_affinity: AntiAffinity | None = None


class PodSpec(Trimmed, frozen=True, kw_only=True):
    node_name: str = ""
    priority: int = 0
    scheduling_gates: tuple[Named, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = {}
    overhead: Amounts = {}
    resources: Resources = Resources()  # of the pod as a whole
    volumes: tuple[Volume, ...] = ()
    affinity: Affinity | None = None


class PodStatus(Trimmed, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: Resources | None = None  # of the pod as a whole, in force
    allocated_resources: Amounts | None = None  # seldom: an empty dictionary each costs memory


class Pod(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Selector(Trimmed, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}


class PodTemplate(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()


class WorkloadSpec(Trimmed, frozen=True, kw_only=True):
    replicas: int = 1
    selector: Selector = Selector()
    template: PodTemplate = PodTemplate()
    parallelism: int = 1  # of a Job
    completions: int | None = None
    suspend: bool = False


class WorkloadStatus(Trimmed, frozen=True, kw_only=True):
    replicas: int = 0
    ready_replicas: int = 0
    active: int = 0  # of a Job
    ready: int = 0
    succeeded: int = 0
    conditions: tuple[Condition, ...] = ()


class Workload(Trimmed, frozen=True, kw_only=True):
    """A Deployment, ReplicaSet, StatefulSet, DaemonSet or Job, as far as we care."""

    metadata: Meta = Meta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class Target(Trimmed, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class MetricTarget(Trimmed, frozen=True, kw_only=True):
    average_utilization: int | None = None  # percent of requests


class ResourceMetric(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    target: MetricTarget = MetricTarget()


class MetricSpec(Trimmed, frozen=True, kw_only=True):
    type: str = ""
    resource: ResourceMetric | None = None


class AutoscalerSpec(Trimmed, frozen=True, kw_only=True):
    scale_target_ref: Target = Target()
    min_replicas: int = 1
    max_replicas: int = 1
    metrics: tuple[MetricSpec, ...] = ()


class AutoscalerStatus(Trimmed, frozen=True, kw_only=True):
    current_replicas: int = 0
    desired_replicas: int = 0
    last_scale_time: datetime | None = None


class Autoscaler(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: AutoscalerSpec = AutoscalerSpec()
    status: AutoscalerStatus = AutoscalerStatus()


class BudgetSpec(Trimmed, frozen=True, kw_only=True):
    selector: Selector = Selector()


class BudgetStatus(Trimmed, frozen=True, kw_only=True):
    current_healthy: int = 0
    desired_healthy: int = 0
    disruptions_allowed: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class Budget(Trimmed, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    metadata: Meta = Meta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class QuotaStatus(Trimmed, frozen=True, kw_only=True):
    hard: Amounts = {}
    used: Amounts = {}


class Quota(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    status: QuotaStatus = QuotaStatus()


class NamespaceStatus(Trimmed, frozen=True, kw_only=True):
    phase: str = ""


class Namespace(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    status: NamespaceStatus = NamespaceStatus()


class Involved(Trimmed, frozen=True, kw_only=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int | None = 0
    last_timestamp: datetime | None = None
    event_time: datetime | None = None


class LeaseSpec(Trimmed, frozen=True, kw_only=True):
    holder_identity: str = ""
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_duration_seconds: int = 40
    lease_transitions: int = 0


class Lease(Trimmed, frozen=True, kw_only=True):
    """A node's heartbeat, or our own place at the helm."""

    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


class Account(Trimmed, frozen=True, kw_only=True):
    """A ServiceAccount of ours, for what its annotations say."""

    metadata: Meta = Meta()


class TicketStep(Trimmed, frozen=True, kw_only=True):
    verb: str = ""
    uid: str = ""
    value: int = 0


class TicketSpec(Trimmed, frozen=True, kw_only=True):
    action: str = ""
    undo: tuple[TicketStep, ...] = ()


class TicketStatus(Trimmed, frozen=True, kw_only=True):
    phase: str = ""
    note: str = ""


class Ticket(Trimmed, frozen=True, kw_only=True):
    """An action of ours, as far as an observer cares: what its owner had declared."""

    metadata: Meta = Meta()
    spec: TicketSpec = TicketSpec()
    status: TicketStatus = TicketStatus()


class NodeClaimStatus(Trimmed, frozen=True, kw_only=True):
    node_name: str = ""
    conditions: tuple[Condition, ...] = ()


class NodeClaim(Trimmed, frozen=True, kw_only=True):
    """A node that Karpenter has asked for."""

    metadata: Meta = Meta()
    status: NodeClaimStatus = NodeClaimStatus()


T = TypeVar(
    "T",
    Node,
    Pod,
    Workload,
    Autoscaler,
    Budget,
    Quota,
    Namespace,
    Event,
    Lease,
    NodeClaim,
    Account,
    Ticket,
)


class ListMeta(Trimmed, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One resource that is cached: where it is served and how it is decoded."""

    name: str  # "pods"
    path: str  # "/api/v1/pods"
    type: type[Trimmed]
    api_group: str = ""
    discovery: str = ""  # asked first; where it is not served, neither is this


KINDS = (
    Kind(name="namespaces", path="/api/v1/namespaces", type=Namespace),
    Kind(name="nodes", path="/api/v1/nodes", type=Node),
    Kind(name="pods", path="/api/v1/pods", type=Pod),
    Kind(name="deployments", path="/apis/apps/v1/deployments", type=Workload, api_group="apps"),
    Kind(name="replicasets", path="/apis/apps/v1/replicasets", type=Workload, api_group="apps"),
    Kind(name="statefulsets", path="/apis/apps/v1/statefulsets", type=Workload, api_group="apps"),
    Kind(name="daemonsets", path="/apis/apps/v1/daemonsets", type=Workload, api_group="apps"),
    Kind(name="jobs", path="/apis/batch/v1/jobs", type=Workload, api_group="batch"),
    Kind(
        name="horizontalpodautoscalers",
        path="/apis/autoscaling/v2/horizontalpodautoscalers",
        type=Autoscaler,
        api_group="autoscaling",
    ),
    Kind(
        name="poddisruptionbudgets",
        path="/apis/policy/v1/poddisruptionbudgets",
        type=Budget,
        api_group="policy",
    ),
    Kind(name="resourcequotas", path="/api/v1/resourcequotas", type=Quota),
    Kind(name="events", path="/api/v1/events", type=Event),
    Kind(
        name="leases",
        path="/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        type=Lease,
        api_group="coordination.k8s.io",
    ),
    Kind(
        name="nodeclaims",
        path="/apis/karpenter.sh/v1/nodeclaims",
        type=NodeClaim,
        api_group="karpenter.sh",
        discovery="/apis/karpenter.sh/v1",
    ),
)

# What an acting Pilothouse keeps beside: its own objects.
ACTING_KINDS = (
    Kind(
        name="serviceaccounts",
        path=f"/api/v1/namespaces/{SYSTEM}/serviceaccounts",
        type=Account,
    ),
    Kind(
        name="tickets",
        path=f"/apis/pilothouse.dev/v1alpha1/namespaces/{SYSTEM}/tickets",
        type=Ticket,
        api_group="pilothouse.dev",
    ),
)
