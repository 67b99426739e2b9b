# SPDX-License-Identifier: Apache-2.0
"""Pods that are left alone, and the reason in words.

One list for whoever looks and whoever acts: nobody would bring a bare pod back, a DaemonSet's pod
comes back to the same node, local storage is lost by moving, and an owner may have said no, to us
or to one of the tools that move pods.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from pilothouse.clients.resources import Pod

SYSTEM_NAMESPACES = ("kube-*", "pilothouse-system")
MANAGED = "pilothouse.dev/managed"
DO_NOT_DISRUPT = ("pilothouse.dev/do-not-disrupt", "karpenter.sh/do-not-disrupt")
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
MIRROR = "kubernetes.io/config.mirror"
OWNERS = ("ReplicaSet", "StatefulSet", "Job", "ReplicationController")


def is_system(namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in SYSTEM_NAMESPACES)


def why_kept(pod: Pod) -> str:
    """Why a pod is not moved; empty when it may be."""
    notes = pod.metadata.annotations
    owner = next((o for o in pod.metadata.owner_references if o.controller), None)
    if owner is None or MIRROR in notes:
        return "nobody would bring it back"
    if owner.kind == "DaemonSet":
        return "its DaemonSet would bring it back to the same node"
    for name in DO_NOT_DISRUPT:
        if notes.get(name) == "true":
            return f"{name} is true"
    if notes.get(SAFE_TO_EVICT) == "false":
        return f"{SAFE_TO_EVICT} is false"
    if PREFER_NO_EVICTION in notes:
        return f"{PREFER_NO_EVICTION} is set"
    local = next((v for v in pod.spec.volumes if v.empty_dir is not None or v.host_path), None)
    if local is not None and notes.get(SAFE_TO_EVICT) != "true":
        return f"volume {local.name} is local storage"
    return ""
