# SPDX-License-Identifier: Apache-2.0
"""What only a live cluster tells: why something is in trouble, what its autoscalers are doing.

These ride along in the snapshot beside its columns. They are small lists of words and whole
numbers, empty on the simulator, and recorded only where there are any.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

NEVER = -1  # in a reaction: that step has not happened


class Cause(StrEnum):
    """Why something is not as it should be, as a person would want to be told."""

    RESOURCES = "resources"
    SELECTOR = "selector or taint"
    GATE = "our gate"
    FOREIGN_GATE = "somebody's gate"
    AUTOSCALER = "waiting for an autoscaler"
    IMAGE = "image"
    QUOTA = "quota"
    UNKNOWN = "unknown"
    MEMORY_GROWTH = "memory growth"
    SATURATION = "saturation"
    DEGRADATION = "node degradation"
    NODE_LOSS = "node loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One cause and what it has hold of; pods of one workload with the same cause are one."""

    cause: Cause
    kind: Literal["node", "workload", "pod"]
    namespace: str
    name: str
    count: int  # pods concerned
    sentence: str  # the cluster's own words where it has any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler:
    """A HorizontalPodAutoscaler as it is now."""

    namespace: str
    name: str  # of the workload it scales
    current: int
    desired: int
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A node that a node autoscaler (Karpenter) has asked for."""

    name: str
    node: str  # empty until it has joined
    ready: bool
    asked_seconds: int  # cluster clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """How late autoscaling was, once: seconds from the load to each step, ``NEVER`` where none.

    Complete when ``running_seconds`` is known; given up when it is ``NEVER``.
    """

    namespace: str
    name: str  # of the workload
    began_seconds: int  # cluster clock at which the load passed the autoscaler's target
    decided_seconds: int  # until the autoscaler wanted more replicas
    node_seconds: int  # until a node that came for it was ready
    running_seconds: int  # until as many replicas ran as were wanted
    replicas_before: int
    replicas_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One figure about one node that somebody's own query gave."""

    name: str  # "disk used"
    node: str
    thousandths: int  # the value times 1000, so that it stays a whole number
    age_seconds: int
