# SPDX-License-Identifier: Apache-2.0
"""Where the scorer's nodes come from: a cluster that is watched, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pilothouse.policy.machines import Machine


class View(Protocol):
    """Where the nodes come from."""

    def machines(self) -> Sequence[Machine]: ...

    def age_seconds(self) -> float: ...


class NoCluster:
    """A scorer without a kubeconfig: callers bring their nodes themselves."""

    def machines(self) -> Sequence[Machine]:
        return ()

    def age_seconds(self) -> float:
        return 0.0
