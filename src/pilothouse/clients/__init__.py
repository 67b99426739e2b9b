# SPDX-License-Identifier: Apache-2.0
"""The only code that talks to Kubernetes or Prometheus."""

from pilothouse.clients.access import Access, from_kubeconfig, from_pod
from pilothouse.clients.store import Store

__all__ = ["Access", "Store", "from_kubeconfig", "from_pod"]
