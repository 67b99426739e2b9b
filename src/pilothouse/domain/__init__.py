# SPDX-License-Identifier: Apache-2.0
"""Frozen values and units; imports nothing of ours."""

from pilothouse.domain.action import Action, Plan, Verb, Write
from pilothouse.domain.decision import Decision
from pilothouse.domain.forecast import (
    HORIZONS_SECONDS,
    Abstention,
    DemandTable,
    Driver,
    Forecast,
    RiskTable,
    horizon_column,
)
from pilothouse.domain.observed import Cause, Claim, Reaction, Reading, Scaler, Trouble
from pilothouse.domain.outcome import Receipt, Result, Reward, Status, Toll
from pilothouse.domain.proposal import (
    ADMISSION_KINDS,
    EFFICIENCY_KINDS,
    SAFETY_KINDS,
    ActionKind,
    Evidence,
    Proposal,
)
from pilothouse.domain.reference import Ref
from pilothouse.domain.snapshot import (
    Gate,
    Interpretation,
    NamespaceTable,
    NodeTable,
    PendingCause,
    Phase,
    PodTable,
    Power,
    Snapshot,
    Source,
    WorkloadKind,
    WorkloadTable,
    ZoneTable,
    columns,
    interpret,
)
from pilothouse.domain.verdict import Mode, Ruling, Verdict

__all__ = [
    "ADMISSION_KINDS",
    "EFFICIENCY_KINDS",
    "HORIZONS_SECONDS",
    "SAFETY_KINDS",
    "Abstention",
    "Action",
    "ActionKind",
    "Cause",
    "Claim",
    "Decision",
    "DemandTable",
    "Driver",
    "Evidence",
    "Forecast",
    "Gate",
    "Interpretation",
    "Mode",
    "NamespaceTable",
    "NodeTable",
    "PendingCause",
    "Phase",
    "Plan",
    "PodTable",
    "Power",
    "Proposal",
    "Reaction",
    "Reading",
    "Receipt",
    "Ref",
    "Result",
    "Reward",
    "RiskTable",
    "Ruling",
    "Scaler",
    "Snapshot",
    "Source",
    "Status",
    "Toll",
    "Trouble",
    "Verb",
    "Verdict",
    "WorkloadKind",
    "WorkloadTable",
    "Write",
    "ZoneTable",
    "columns",
    "horizon_column",
    "interpret",
]
