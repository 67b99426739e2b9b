# SPDX-License-Identifier: Apache-2.0
"""etcd, API server, controller manager and scheduler.

The audit log is the lab's independent witness of who wrote what. Controller manager and scheduler
elect no leader: an etcd pause would make them exit, and what is tested afterwards would pass for
nothing.
"""

from __future__ import annotations

from pathlib import Path

from pilothouse.lab.certificates import Authority, key_pair, write_kubeconfig
from pilothouse.lab.component import Component, Site, flags
from pilothouse.lab.layout import API_ADDRESS, API_PORT, SERVICE_RANGE, Layout, Worker

MANIFESTS = Path(__file__).parent / "manifests"
MASTERS = ("system:masters",)

# Everybody with a kubeconfig: file name -> (user, groups). Roles are in manifests/roles.yaml.
IDENTITIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("lab-admin", MASTERS),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("lab-kwok", ()),
    "metrics-server": ("lab-metrics-server", ()),
    "kube-state-metrics": ("lab-kube-state-metrics", ()),
    "prometheus": ("lab-prometheus", ()),
    "load": ("lab-load", ()),
    "exerciser": ("lab-exerciser", ()),
    "scorer": ("lab-scorer", ()),
}


def issue(layout: Layout, workers: list[Worker]) -> None:
    """Every key, certificate and kubeconfig of the lab."""
    authority = Authority(layout.pki, "ca")
    authority.establish()
    front = Authority(layout.pki, "front-proxy-ca")
    front.establish()
    front.sign("front-proxy", common_name="front-proxy-client")
    key_pair(layout.pki / "accounts.key", layout.pki / "accounts.pub")
    names = ",".join(
        [f"IP:{API_ADDRESS}", "IP:127.0.0.1", "DNS:localhost"]
        + [f"DNS:kubernetes{rest}" for rest in ("", ".default", ".default.svc")]
    )
    authority.sign("kube-apiserver", common_name="kube-apiserver", names=names)
    authority.sign("apiserver-kubelet", common_name="lab-apiserver", groups=MASTERS)
    authority.sign("loopback", common_name="loopback", names="IP:127.0.0.1,DNS:localhost")
    authority.sign("fake-nodes", common_name="fake-nodes", names=f"IP:{API_ADDRESS}")
    for file, (user, groups) in IDENTITIES.items():
        _identify(layout, authority, file, user, groups)
    for worker in workers:
        user = f"system:node:{worker.name}"
        _identify(layout, authority, worker.name, user, ("system:nodes",))
        served = f"IP:{worker.address},DNS:{worker.name}"
        authority.sign(f"{worker.name}-serving", common_name=worker.name, names=served)


def _identify(
    layout: Layout, authority: Authority, file: str, user: str, groups: tuple[str, ...]
) -> None:
    certificate, key = authority.sign(file, common_name=user, groups=groups)
    write_kubeconfig(
        layout.pki / f"{file}.kubeconfig",
        authority=authority.certificate,
        certificate=certificate,
        key=key,
    )


def etcd(site: Site) -> Component:
    client = f"http://127.0.0.1:{site.ports['etcd']}"
    peer = f"http://127.0.0.1:{site.ports['etcd-peer']}"
    return Component(
        name="etcd",
        command=(
            site.binaries["etcd"],
            *flags(
                name="lab",
                data_dir=str(site.layout.folder("etcd")),
                listen_client_urls=client,
                advertise_client_urls=client,
                listen_peer_urls=peer,
                initial_advertise_peer_urls=peer,
                initial_cluster=f"lab={peer}",
                auto_compaction_retention="10m",
                log_level="warn",
            ),
        ),
    )


def apiserver(site: Site) -> Component:
    return Component(
        name="kube-apiserver",
        command=(
            site.binaries["kube-apiserver"],
            *flags(
                etcd_servers=f"http://127.0.0.1:{site.ports['etcd']}",
                bind_address=API_ADDRESS,
                advertise_address=API_ADDRESS,
                secure_port=API_PORT,
                tls_cert_file=site.pki("kube-apiserver.crt"),
                tls_private_key_file=site.pki("kube-apiserver.key"),
                client_ca_file=site.pki("ca.crt"),
                service_cluster_ip_range=SERVICE_RANGE,
                service_account_key_file=site.pki("accounts.pub"),
                service_account_signing_key_file=site.pki("accounts.key"),
                service_account_issuer="https://kubernetes.default.svc",
                authorization_mode="Node,RBAC",
                enable_admission_plugins="NodeRestriction",
                allow_privileged="true",
                kubelet_client_certificate=site.pki("apiserver-kubelet.crt"),
                kubelet_client_key=site.pki("apiserver-kubelet.key"),
                kubelet_certificate_authority=site.pki("ca.crt"),
                kubelet_preferred_address_types="InternalIP",
                requestheader_client_ca_file=site.pki("front-proxy-ca.crt"),
                requestheader_allowed_names="front-proxy-client",
                requestheader_extra_headers_prefix="X-Remote-Extra-",
                requestheader_group_headers="X-Remote-Group",
                requestheader_username_headers="X-Remote-User",
                proxy_client_cert_file=site.pki("front-proxy.crt"),
                proxy_client_key_file=site.pki("front-proxy.key"),
                audit_policy_file=str(MANIFESTS / "audit-policy.yaml"),
                audit_log_path=str(site.layout.audit_log),
                audit_log_maxsize=200,
                audit_log_maxbackup=5,
                profiling="false",
                event_ttl="1h",
            ),
        ),
    )


def controller_manager(site: Site, *, patience: int) -> Component:
    """``patience``: after so many seconds without a heartbeat a node is called lost."""
    return Component(
        name="kube-controller-manager",
        command=(
            site.binaries["kube-controller-manager"],
            *flags(
                kubeconfig=site.kubeconfig("kube-controller-manager"),
                authentication_kubeconfig=site.kubeconfig("kube-controller-manager"),
                authorization_kubeconfig=site.kubeconfig("kube-controller-manager"),
                bind_address="127.0.0.1",
                secure_port=site.ports["kube-controller-manager"],
                tls_cert_file=site.pki("loopback.crt"),
                tls_private_key_file=site.pki("loopback.key"),
                leader_elect="false",
                use_service_account_credentials="true",
                service_account_private_key_file=site.pki("accounts.key"),
                root_ca_file=site.pki("ca.crt"),
                cluster_signing_cert_file=site.pki("ca.crt"),
                cluster_signing_key_file=site.pki("ca.key"),
                node_monitor_grace_period=f"{patience}s",
                # Short, so that what an autoscaler does shows within a test.
                horizontal_pod_autoscaler_sync_period="5s",
                kube_api_qps=200,  # the default of 20 makes ten thousand pods a matter of minutes
                kube_api_burst=400,
                horizontal_pod_autoscaler_cpu_initialization_period="20s",
                horizontal_pod_autoscaler_initial_readiness_delay="5s",
                profiling="false",
            ),
        ),
    )


def scheduler(site: Site) -> Component:
    return Component(
        name="kube-scheduler",
        command=(
            site.binaries["kube-scheduler"],
            *flags(
                kubeconfig=site.kubeconfig("kube-scheduler"),
                authentication_kubeconfig=site.kubeconfig("kube-scheduler"),
                authorization_kubeconfig=site.kubeconfig("kube-scheduler"),
                bind_address="127.0.0.1",
                secure_port=site.ports["kube-scheduler"],
                tls_cert_file=site.pki("loopback.crt"),
                tls_private_key_file=site.pki("loopback.key"),
                leader_elect="false",
                kube_api_qps=200,
                kube_api_burst=400,
                profiling="false",
            ),
        ),
    )
