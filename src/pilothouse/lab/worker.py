# SPDX-License-Identifier: Apache-2.0
"""A real node: its own containerd, kubelet, bridge and cgroup, and a meter that speaks for it.

The kubelet counts the whole machine's cores; what the node may not use is declared as reserved,
and the node's cgroup makes that true. Kubelet and containerd live in a mount and cgroup namespace
whose root is that cgroup, so the usage they report is the node's and not the machine's, and their
mounts go with them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

from pilothouse.errors import LabFailed
from pilothouse.lab import cgroup
from pilothouse.lab.component import Component, Site, flags
from pilothouse.lab.image import PAUSE_IMAGE
from pilothouse.lab.layout import MARK, NODE_METER_PORT, Layout, Worker
from pilothouse.lab.part import CNI_FOLDERS

# Folders that containerd, CNI and kubelets let nobody choose: each worker sees its own, empty.
PRIVATE_FOLDERS = (
    Path("/run/containerd"),
    Path("/var/lib/cni"),
    Path("/var/lib/kubelet"),
    Path("/var/log/containers"),
)
DEFAULT_SOCKET = Path("/run/containerd/containerd.sock")


def machine_memory_kib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    raise LabFailed("/proc/meminfo does not say how much memory this machine has.")


def enclosure(site: Site, worker: Worker) -> Component:
    """A process that holds the node's namespaces; the others enter them."""
    join = [f"echo $$ > {mount}{worker.cgroup}/cgroup.procs" for mount, _ in cgroup.mounts()]
    again = [f"umount {at} && mount {how} cgroup {at}" for at, how in cgroup.mounts()]
    held = f"exec {shlex.quote(site.binaries['workload'])} pause"
    private = [f"mount -t tmpfs tmpfs {folder}" for folder in PRIVATE_FOLDERS]
    # Where kubelets look for containerd when they put names on what they measure.
    private.append(f"ln -s {shlex.quote(str(socket(site.layout, worker)))} {DEFAULT_SOCKET}")
    inside = " && ".join([*again, *private, held])
    unshare = "exec unshare --mount --propagation private --cgroup /bin/sh -c "
    script = " && ".join([*join, unshare + shlex.quote(inside)])
    return Component(name=f"node-{worker.name}", command=("/bin/sh", "-c", script))


def is_enclosed(site: Site, pid: int) -> bool:
    """Whether the holder has done everything and become what it stays."""
    try:
        return os.readlink(f"/proc/{pid}/exe") == os.path.realpath(site.binaries["workload"])
    except OSError:
        return False


def _enter(pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--target={pid}", "--mount", "--cgroup", "--")


def containerd(site: Site, worker: Worker, pid: int) -> Component:
    home = site.layout.folder(worker.name)
    config = home / "containerd.toml"
    config.write_text(_containerd_config(site.layout, worker))
    return Component(
        name=f"containerd-{worker.name}",
        command=(*_enter(pid), "containerd", "--config", str(config)),
        environment={"PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"},
    )


def socket(layout: Layout, worker: Worker) -> Path:
    return layout.run / worker.name / "containerd.sock"


def _containerd_config(layout: Layout, worker: Worker) -> str:
    home = layout.run / worker.name
    plugins = next((folder for folder in CNI_FOLDERS if folder.is_dir()), CNI_FOLDERS[0])
    networks = layout.folder(worker.name, "cni")
    (networks / "10-lab.conflist").write_text(json.dumps(_network(layout, worker), indent=2))
    return f"""\
version = 2
root = "{home}/containerd-root"
state = "{home}/containerd-state"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.btrfs", \
"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]

[grpc]
  address = "{socket(layout, worker)}"

[ttrpc]
  address = "{socket(layout, worker)}.ttrpc"

[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{networks}"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{home}/runc"
      SystemdCgroup = false
"""


def _network(layout: Layout, worker: Worker) -> dict[str, object]:
    return {
        "cniVersion": "0.4.0",
        "name": f"{MARK}-{worker.name}",
        "plugins": [
            {
                "type": "bridge",
                "bridge": worker.bridge,
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(layout.run / worker.name / "addresses"),
                    "ranges": [[{"subnet": worker.subnet, "gateway": worker.address}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def load_image(layout: Layout, worker: Worker, archive: Path) -> None:
    command = ["ctr", "--address", str(socket(layout, worker)), "--namespace", "k8s.io"]
    done = subprocess.run(
        [*command, "images", "import", str(archive)], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise LabFailed(f"Loading {archive.name} on {worker.name}: {done.stderr.strip()[-400:]}")


def kubelet(site: Site, worker: Worker, pid: int) -> Component:
    home = site.layout.folder(worker.name)
    config = home / "kubelet.json"
    config.write_text(json.dumps(_kubelet_config(site, worker), indent=2))
    return Component(
        name=f"kubelet-{worker.name}",
        command=(
            *_enter(pid),
            site.binaries["kubelet"],
            *flags(
                config=str(config),
                kubeconfig=site.kubeconfig(worker.name),
                root_dir=str(site.layout.folder(worker.name, "kubelet")),
                cert_dir=str(site.layout.folder(worker.name, "kubelet-pki")),
                hostname_override=worker.name,
                housekeeping_interval="5s",  # of usage; ten is the default
                node_ip=worker.address,
                node_labels=f"pilothouse.dev/lab=worker,topology.kubernetes.io/zone={worker.zone}",
            ),
        ),
        environment={"PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"},
    )


def _kubelet_config(site: Site, worker: Worker) -> dict[str, object]:
    reserved_cpu = max((os.cpu_count() or 1) * 1000 - worker.cpu_millicores, 0)
    reserved_memory = max(machine_memory_kib() - worker.memory_mib * 1024, 0)
    home = site.layout.run / worker.name
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": worker.address,
        "port": 10250,
        "healthzBindAddress": worker.address,
        "healthzPort": 10248,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "10s"},
            "x509": {"clientCAFile": site.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": site.pki(f"{worker.name}-serving.crt"),
        "tlsPrivateKeyFile": site.pki(f"{worker.name}-serving.key"),
        "containerRuntimeEndpoint": f"unix://{socket(site.layout, worker)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "systemReserved": {"cpu": f"{reserved_cpu}m", "memory": f"{reserved_memory}Ki"},
        # Pressure is judged inside the node's own limit, by the kernel; these look at the machine.
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "clusterDomain": "cluster.local",
        "podLogsDir": str(home / "pod-logs"),
        "volumePluginDir": str(home / "volume-plugins"),
        "containerLogMaxSize": "5Mi",
        "containerLogMaxFiles": 2,
        "maxPods": 60,
        "nodeStatusUpdateFrequency": "5s",
        "nodeStatusReportFrequency": "30s",
        "nodeLeaseDurationSeconds": 20,
        "shutdownGracePeriod": "0s",
        "serializeImagePulls": True,
        "registerNode": True,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def meter(site: Site, worker: Worker) -> Component:
    return Component(
        name=f"meter-{worker.name}",
        command=(
            site.binaries["workload"],
            "meter",
            *flags(
                listen=f"{worker.address}:{NODE_METER_PORT}",
                cpu_millicores=worker.cpu_millicores,
                memory_mib=worker.memory_mib,
                cgroup=worker.cgroup,
                bridge=worker.bridge,
                disk=str(site.layout.run),
            ),
        ),
    )
