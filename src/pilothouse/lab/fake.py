# SPDX-License-Identifier: Apache-2.0
"""Fake nodes by kwok: many Node objects, pods that run at once, usage that is only stated.

They exist for scale. Their usage is what annotations say, never measured, and every node of them
carries a taint so that real pods do not land on them by accident.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pilothouse.lab.component import Component, Site, flags
from pilothouse.lab.controlplane import MANIFESTS
from pilothouse.lab.layout import API_ADDRESS, FAKE_NODE_PORT

ANNOTATION = "kwok.x-k8s.io/node"
FAKE_TAINT = {"key": "pilothouse.dev/fake", "value": "true", "effect": "NoSchedule"}
FAKE_RANGE = "10.199.0.0/16"  # addresses of pods that nobody can reach


def lease_seconds(count: int) -> int:
    """How long a fake node's lease lasts unless somebody asks for more; renewed four times in it.

    At most 100 renewals a second: one process renews for all of them on a machine that has other
    things to do. Kubernetes' own 40 seconds hold up to a thousand nodes.
    """
    return max(40, count // 25)


def kwok(site: Site, *, lease_seconds: int) -> Component:
    return Component(
        name="kwok",
        command=(
            site.binaries["kwok"],
            *flags(
                kubeconfig=site.kubeconfig("kwok"),
                config=str(MANIFESTS / "kwok.yaml"),
                manage_all_nodes="false",
                manage_nodes_with_annotation_selector=f"{ANNOTATION}=fake",
                node_lease_duration_seconds=lease_seconds,
                cidr=FAKE_RANGE,
                node_ip=API_ADDRESS,
                node_port=FAKE_NODE_PORT,
                server_address=f"{API_ADDRESS}:{FAKE_NODE_PORT}",
                v="ERROR",  # else a line for every lease, status and pod without usage
                tls_cert_file=site.pki("fake-nodes.crt"),
                tls_private_key_file=site.pki("fake-nodes.key"),
            ),
        ),
    )


def name_of(number: int, *, prefix: str = "fake") -> str:
    return f"{prefix}-{number:04d}"


def nodes(
    count: int,
    *,
    prefix: str = "fake",
    cpu: str = "8",
    memory: str = "32Gi",
    pods: int = 110,
) -> Iterator[str]:
    """Node objects as JSON documents, one by one."""
    size = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    for number in range(1, count + 1):
        name = name_of(number, prefix=prefix)
        yield json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "annotations": {
                        ANNOTATION: "fake",
                        "metrics.k8s.io/resource-metrics-path": (
                            f"/metrics/nodes/{name}/metrics/resource"
                        ),
                    },
                    "labels": {
                        "kubernetes.io/hostname": name,
                        "kubernetes.io/os": "linux",
                        "kubernetes.io/arch": "amd64",
                        "pilothouse.dev/lab": "fake",
                        "topology.kubernetes.io/zone": "abc"[number % 3],
                    },
                },
                "spec": {"taints": [FAKE_TAINT]},
                "status": {"allocatable": size, "capacity": size},
            }
        )
