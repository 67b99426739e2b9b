# SPDX-License-Identifier: Apache-2.0
"""Agents that want things; one file each. They never act and never look outside the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pilothouse.domain import Forecast, Proposal, Snapshot


class Proposer(Protocol):
    """Suggests changes. Pure and stateless: the same snapshot and forecast, the same wishes.

    It answers every cycle; one that wants nothing says so with its best candidate and its score.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]: ...


__all__ = ["Proposer"]
