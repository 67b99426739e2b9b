# SPDX-License-Identifier: Apache-2.0
"""What happened: the backend's answer at once, the cluster's answer after the settle window."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How one write ended."""

    DONE = "done"
    REFUSED = "refused"  # the backend said no: a disruption budget, a value not ours any more
    FAILED = "failed"  # the backend broke or the object is gone
    SKIPPED = "skipped"  # not sent: halted, expired, or looked for after a crash and not found


# Between what was written and why it has no effect yet, in the detail of a write that is done.
NOT_IN_FORCE = ", not in force: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The backend's answer to one intent. One intent has at most one receipt that is done."""

    intent: str
    status: Status
    detail: str
    at_seconds: int  # cluster clock

    @property
    def reservation(self) -> str:
        """Why a write that is done has no effect yet: a resize that its node puts off."""
        return self.detail.partition(NOT_IN_FORCE)[2] if self.status is Status.DONE else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toll:
    """What a stretch of cluster time cost. Sums over the cluster; lower is better."""

    failed_pod_seconds: float  # pods that should serve and do not
    violation_seconds: float  # workloads outside their objective, and refused, queued or late work
    waiting_pod_seconds: float  # pods pending or gated
    energy_joules: float  # modelled
    energy_cost_micros: float  # modelled
    carbon_grams: float  # modelled

    def minus(self, other: Toll) -> Toll:
        return Toll(
            failed_pod_seconds=self.failed_pod_seconds - other.failed_pod_seconds,
            violation_seconds=self.violation_seconds - other.violation_seconds,
            waiting_pod_seconds=self.waiting_pod_seconds - other.waiting_pod_seconds,
            energy_joules=self.energy_joules - other.energy_joules,
            energy_cost_micros=self.energy_cost_micros - other.energy_cost_micros,
            carbon_grams=self.carbon_grams - other.carbon_grams,
        )

    def times(self, factor: float) -> Toll:
        """What it would have been over a stretch so many times as long."""
        return Toll(
            failed_pod_seconds=self.failed_pod_seconds * factor,
            violation_seconds=self.violation_seconds * factor,
            waiting_pod_seconds=self.waiting_pod_seconds * factor,
            energy_joules=self.energy_joules * factor,
            energy_cost_micros=self.energy_cost_micros * factor,
            carbon_grams=self.carbon_grams * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Reward components by objective: nothing dies (A), nothing idles (B), a healthy queue (C)."""

    safety: float
    efficiency: float
    admission: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an action changed, from the state *after* its settle window."""

    action: str
    settled_seconds: int  # cluster clock at the end of the window
    method: str  # "fork": against the same cluster without the action; "observed": before and after
    toll: Toll  # of the real cluster over the window
    effect: Toll | None  # toll minus the fork's; negative numbers are savings; None: unknown
    reward: Reward | None  # of the effect; observed: of the window against as long a time before it
    overlapped: bool  # another action touched the same objects inside the window
    sentence: str
