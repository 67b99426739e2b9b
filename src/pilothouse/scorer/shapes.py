# SPDX-License-Identifier: Apache-2.0
"""What the scorer takes and gives, field by field; the OpenAPI document is made from these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=253)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Milliseconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class Given(BaseModel):
    """Base of everything that comes in: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class PodIn(Given):
    """The pod to place."""

    namespace: str = Field("default", max_length=253)
    name: str = Field("", max_length=253)
    uid: str = Field("", max_length=128, description="Finds what was published for this pod.")
    cpu_millicores: Amount = 0
    memory_mib: Amount = 0
    soft_limit_ms: Milliseconds | None = Field(None, description="None or 0: no limit.")
    hard_limit_ms: Milliseconds | None = None
    user: str = Field("", max_length=253, description="Whose latency counts; empty: the default.")


class NodeIn(Given):
    """A candidate; what is left out comes from the watched cluster."""

    name: Name
    pods: Amount | None = None
    pod_capacity: Amount | None = None
    cpu_requested: Amount | None = None
    cpu_allocatable: Amount | None = None
    memory_requested: Amount | None = None
    memory_allocatable: Amount | None = None
    active: bool | None = None
    latency_ms: Milliseconds | None = None
    idle_power_share: Annotated[float, Field(ge=0, le=1)] | None = None


class SuggestionRequest(Given):
    """One pod and the nodes that may take it; without nodes all of the cluster's."""

    pod: PodIn
    nodes: list[NodeIn] | None = Field(None, max_length=10_000)


class FlipOut(BaseModel):
    """The nearest value of one feature at which the choice would have been another."""

    feature: str
    now: float
    then: float
    sentence: str


class NodeScore(BaseModel):
    """One node: its score and where that comes from."""

    node: str
    score: int
    q: float | None
    feasible: bool
    features: dict[str, float]
    contributions: dict[str, float]
    flip: FlipOut | None = Field(description="The nearest of the flips.")
    flips: list[FlipOut] = Field(description="One for each feature that flips it by itself.")
    no_flip: str = Field(description="Why there is none; empty where there are.")


class SuggestionOut(BaseModel):
    """Scores of 0 to 100, and why."""

    policy: str
    chosen: str | None
    published: bool  # the scores are somebody else's, published for this pod
    nodes: list[NodeScore]
    unknown: list[str]


class Publication(Given):
    """Scores of an external policy for one pod."""

    scores: dict[Name, Percent] = Field(min_length=1, max_length=10_000)
    ttl_seconds: Seconds = 60
    source: str = Field("unknown", max_length=80)


class Avoidance(Given):
    """Nodes to leave alone, each for so many seconds; replaces the list before."""

    nodes: dict[Name, Seconds] = Field(max_length=10_000)


class NodeOut(BaseModel):
    """One node as the scorer sees it, with ages."""

    node: str
    ready: bool
    pods: int
    counted_pods: int
    cpu_requested_millicores: int
    cpu_allocatable_millicores: int
    memory_requested_mib: int
    memory_allocatable_mib: int
    latency_ms: float | None
    latency_spread_ms: float | None
    latency_age_seconds: float | None
    metrics: dict[str, float]
    metrics_age_seconds: float | None
    avoided: bool


class NodesOut(BaseModel):
    """All nodes, and how old the view of the cluster is."""

    age_seconds: float
    nodes: list[NodeOut]


class PolicyOut(BaseModel):
    """The policy in use and how the last reload went."""

    version: str | None
    card: dict[str, Any] | None
    last_reload: str


class Health(BaseModel):
    """Alive or ready, and why."""

    ok: bool
    detail: str


class ProblemDetail(BaseModel):
    """What is wrong, and what to do."""

    code: str
    message: str
    hint: str


class ProblemOut(BaseModel):
    """The one shape of every error."""

    error: ProblemDetail


class ExtenderArguments(BaseModel):
    """The extender protocol's own request; only what is used is named."""

    model_config = ConfigDict(extra="ignore")
    pod: dict[str, Any] | None = None
    nodes: dict[str, Any] | None = None
    nodenames: list[str] | None = None


class ExtenderFiltered(BaseModel):
    """The extender protocol's answer to a filter."""

    nodes: dict[str, Any] | None = None
    nodenames: list[str] | None = None
    failedNodes: dict[str, str] = {}  # noqa: N815
    failedAndUnresolvableNodes: dict[str, str] = {}  # noqa: N815
    error: str = ""


class HostPriority(BaseModel):
    """The extender protocol's answer to a prioritize, one per node."""

    host: str
    score: int


class Accepted(BaseModel):
    """A batch of records was made durable."""

    seq: int
