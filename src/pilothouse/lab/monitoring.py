# SPDX-License-Identifier: Apache-2.0
"""metrics-server, kube-state-metrics and Prometheus for the lab."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import yaml

from pilothouse.lab.component import Component, Site, flags
from pilothouse.lab.controlplane import MANIFESTS
from pilothouse.lab.layout import (
    API_ADDRESS,
    API_PORT,
    CLUSTER,
    FAKE_NODE_PORT,
    NODE_METER_PORT,
    Worker,
)

SCRAPE = "5s"  # short, so that a test need not wait for two scrapes of fifteen


def metrics_server(site: Site, *, fake_nodes: int) -> Component:
    # One process answers for all fake kubelets and works out their pods' usage at every question.
    resolution = max(10, fake_nodes // 160)
    return Component(
        name="metrics-server",
        command=(
            site.binaries["metrics-server"],
            *flags(
                kubeconfig=site.kubeconfig("metrics-server"),
                authentication_kubeconfig=site.kubeconfig("metrics-server"),
                authorization_kubeconfig=site.kubeconfig("metrics-server"),
                bind_address="127.0.0.1",
                secure_port=site.ports["metrics-server"],
                tls_cert_file=site.pki("loopback.crt"),
                tls_private_key_file=site.pki("loopback.key"),
                kubelet_certificate_authority=site.pki("ca.crt"),
                kubelet_client_certificate=site.pki("metrics-server.crt"),
                kubelet_client_key=site.pki("metrics-server.key"),
                kubelet_use_node_status_port="true",
                kubelet_preferred_address_types="InternalIP",
                metric_resolution=f"{resolution}s",
                kubelet_request_timeout="5s",  # it exits when this equals the resolution
            ),
        ),
    )


def kube_state_metrics(site: Site) -> Component:
    return Component(
        name="kube-state-metrics",
        command=(
            site.binaries["kube-state-metrics"],
            *flags(
                kubeconfig=site.kubeconfig("kube-state-metrics"),
                host="127.0.0.1",
                port=site.ports["kube-state-metrics"],
                telemetry_host="127.0.0.1",
                telemetry_port=site.ports["kube-state-metrics-self"],
                resources=(
                    "nodes,pods,namespaces,deployments,replicasets,statefulsets,daemonsets,jobs,"
                    "cronjobs,horizontalpodautoscalers,poddisruptionbudgets,resourcequotas"
                ),
            ),
        ),
    )


def prometheus(site: Site, workers: list[Worker], fake_nodes: Sequence[str]) -> Component:
    home = site.layout.folder("prometheus")
    config = home / "prometheus.yml"
    config.write_text(yaml.safe_dump(_config(site, workers, fake_nodes), sort_keys=False))
    return Component(
        name="prometheus",
        command=(
            shutil.which("prometheus") or "prometheus",
            *(
                f"--config.file={config}",
                f"--storage.tsdb.path={home / 'data'}",
                "--storage.tsdb.retention.time=6h",
                f"--web.listen-address=127.0.0.1:{site.ports['prometheus']}",
                "--log.level=warn",
            ),
        ),
    )


def _config(site: Site, workers: list[Worker], fake_nodes: Sequence[str]) -> dict[str, Any]:
    tls = {
        "ca_file": site.pki("ca.crt"),
        "cert_file": site.pki("prometheus.crt"),
        "key_file": site.pki("prometheus.key"),
    }
    cluster = {"target_label": "cluster", "replacement": CLUSTER}
    state = f"127.0.0.1:{site.ports['kube-state-metrics']}"
    return {
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": [str(MANIFESTS / "rules.yaml")],
        "scrape_configs": [
            *(
                {
                    "job_name": f"kubelet{path}",
                    "scheme": "https",
                    "metrics_path": path,
                    "tls_config": tls,
                    "static_configs": [
                        {"targets": [f"{w.address}:10250"], "labels": {"node": w.name}}
                        for w in workers
                    ],
                    "relabel_configs": [
                        {"target_label": "job", "replacement": "kubelet"},
                        {"target_label": "metrics_path", "replacement": path},
                        cluster,
                    ],
                }
                for path in ("/metrics/cadvisor", "/metrics/resource")
            ),
            _fake_kubelets(fake_nodes, tls, cluster),
            {
                "job_name": "node",
                "static_configs": [
                    {
                        "targets": [f"{w.address}:{NODE_METER_PORT}"],
                        "labels": {"node": w.name},
                    }
                    for w in workers
                ],
                "relabel_configs": [cluster],
            },
            {
                "job_name": "kube-state-metrics",
                "honor_labels": True,
                "static_configs": [{"targets": [state]}],
                "relabel_configs": [cluster],
            },
            {
                "job_name": "apiserver",
                "scheme": "https",
                "tls_config": tls,
                "static_configs": [{"targets": [f"{API_ADDRESS}:{API_PORT}"]}],
                "relabel_configs": [cluster],
            },
            _pods(site, cluster),
        ],
    }


def _fake_kubelets(
    names: Sequence[str], tls: dict[str, str], cluster: dict[str, str]
) -> dict[str, Any]:
    """One process answers for all fake nodes, each at a path of its own."""
    return {
        "job_name": "kubelet-fake",
        "scheme": "https",
        "tls_config": tls,
        "static_configs": [
            {
                "targets": [f"{API_ADDRESS}:{FAKE_NODE_PORT}"],
                "labels": {
                    "node": name,
                    "instance": name,
                    "__metrics_path__": f"/metrics/nodes/{name}/metrics/resource",
                },
            }
            for name in names
        ],
        "relabel_configs": [{"target_label": "job", "replacement": "kubelet"}, cluster],
    }


def targets(site: Site) -> Component:
    """Says which pods want to be scraped: Debian's Prometheus cannot ask Kubernetes itself."""
    return Component(
        name="targets",
        command=(
            site.binaries["workload"],
            "targets",
            *flags(
                listen=f"127.0.0.1:{site.ports['targets']}",
                api=f"https://{API_ADDRESS}:{API_PORT}",
                ca=site.pki("ca.crt"),
                cert=site.pki("prometheus.crt"),
                key=site.pki("prometheus.key"),
                node_prefix="worker-",
            ),
        ),
    )


def _pods(site: Site, cluster: dict[str, str]) -> dict[str, Any]:
    """Every pod on a real node that asks for it by the usual annotations."""
    return {
        "job_name": "pods",
        "http_sd_configs": [
            {"url": f"http://127.0.0.1:{site.ports['targets']}/", "refresh_interval": SCRAPE}
        ],
        "relabel_configs": [cluster],
    }
