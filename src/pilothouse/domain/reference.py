# SPDX-License-Identifier: Apache-2.0
"""How an object of a cluster is named everywhere in Pilothouse.

A reference carries the cluster's name, so records of several clusters can share one journal,
one page and one search without being mistaken for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ObjectKind = Literal["cluster", "namespace", "node", "workload", "pod"]


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """One object: ``sim/node/worker-2``, ``sim/workload/shop/cart``, ``sim/cluster``."""

    cluster: str
    kind: ObjectKind
    namespace: str = ""  # empty unless the kind is namespaced
    name: str = ""  # empty for the cluster itself

    def __str__(self) -> str:
        parts = (self.cluster, self.kind, self.namespace, self.name)
        return "/".join(part for part in parts if part)

    @property
    def short(self) -> str:
        """The name an operator says aloud: without the cluster and the kind."""
        return "/".join(part for part in (self.namespace, self.name) if part) or self.cluster
