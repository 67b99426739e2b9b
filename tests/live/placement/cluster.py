# SPDX-License-Identifier: Apache-2.0
"""What the placement tests do to a lab with three workers: pods, distances, lost nodes."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml

from pilothouse.explain import placements
from pilothouse.lab import Lab
from pilothouse.lab.placement import PLUGIN, journal, token_file

NAMESPACE = "placement"
# Five times the usual 20 and 30 ms: a machine full of other work adds tens of milliseconds.
LIMITS = {"latencySoftConstraint": "100", "latencyHardConstraint": "150"}
NEAR, FAR = 5.0, 400.0
WORKERS = ("worker-1", "worker-2", "worker-3")
Eventually = Callable[..., Any]


def a_pod(name: str, *, annotations: dict[str, str] = LIMITS) -> dict[str, Any]:
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "workload",
                    "image": "docker.io/pilothouse/workload:lab",
                    "imagePullPolicy": "Never",
                    "args": ["serve"],
                    "resources": resources,
                }
            ],
        },
    }


def place(
    lab: Lab,
    eventually: Eventually,
    name: str,
    *,
    wish: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> str:
    """Create a pod, ``wish`` put into its spec, and wait until it has a node."""
    create(lab, name, wish=wish, **arguments)
    return str(eventually(lambda: node_of(lab, name), every=0.1))


def create(lab: Lab, name: str, *, wish: Mapping[str, Any] | None = None, **arguments: Any) -> None:
    pod = a_pod(name, **arguments)
    pod["spec"] |= dict(wish or {})
    lab.kubectl("create", "-f", "-", text=json.dumps(pod))


def pod_of(lab: Lab, name: str) -> dict[str, Any]:
    return dict(json.loads(lab.kubectl("get", "pod", name, "-n", NAMESPACE, "-o", "json")))


def node_of(lab: Lab, name: str) -> str:
    return str(pod_of(lab, name)["spec"].get("nodeName", ""))


def refusal_of(lab: Lab, name: str) -> str:
    """Why the scheduler found no node for a pod; empty until it has looked."""
    conditions = pod_of(lab, name)["status"].get("conditions", ())
    said = [c.get("message", "") for c in conditions if c["type"] == "PodScheduled"]
    return str(said[0]) if said else ""


@contextmanager
def scheduler_with(lab: Lab, eventually: Eventually, **arguments: Any) -> Iterator[None]:
    """The scheduler started again with other arguments of the plugin; as it was afterwards."""
    before = (lab.layout.run / "scheduler" / "configuration.yaml").read_text()
    document = yaml.safe_load(before)
    for entry in document["profiles"][0]["pluginConfig"]:
        if entry["name"] == PLUGIN:
            entry["args"] |= arguments
    _start_scheduler(lab, eventually, yaml.safe_dump(document, sort_keys=False))
    try:
        yield
    finally:
        _start_scheduler(lab, eventually, before)


def _start_scheduler(lab: Lab, eventually: Eventually, configuration: str) -> None:
    (lab.layout.run / "scheduler" / "configuration.yaml").write_text(configuration)
    lab.restart("kube-scheduler")
    wait_for_refreshes(lab, eventually)


def uid_of(lab: Lab, name: str) -> str:
    return lab.kubectl(
        "get", "pod", name, "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}"
    ).strip()


def record_of(lab: Lab, eventually: Eventually, name: str) -> dict[str, Any]:
    """The journal's record of a pod's placement."""
    found: dict[str, Any] = eventually(
        lambda: placements.find([journal(lab.layout)], f"pod/{NAMESPACE}/{name}")
    )
    return found


def ask(lab: Lab, method: str, path: str, body: Any = None) -> Any:
    token = token_file(lab.layout).read_text().strip()
    request = urllib.request.Request(
        f"{lab.scorer_url}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def ask_quietly(lab: Lab) -> Any:
    try:
        return ask(lab, "GET", "/v1/table")
    except OSError:
        return None


def put_near(lab: Lab, eventually: Eventually, near: str) -> None:
    """Put one worker near the user and the others far; wait until the scheduler has seen it."""
    put_at(lab, eventually, {name: NEAR if name == near else FAR for name in WORKERS})


def put_at(lab: Lab, eventually: Eventually, distances: Mapping[str, float]) -> None:
    """Put workers so many milliseconds away; wait until the scheduler has seen it."""
    lab.set_latency(dict(distances))

    def seen() -> bool:
        found = (ask_quietly(lab) or {"latency": {}})["latency"].get("", {})
        return all(name in found and ms <= found[name] <= ms + 75 for name, ms in distances.items())

    eventually(seen, seconds=90)
    wait_for_refreshes(lab, eventually)


def leave(lab: Lab, name: str) -> None:
    """The node dies, and is taken off the cluster's list as a cloud would."""
    lab.kill(f"kubelet-{name}")
    lab.kubectl("delete", "node", name)


def join(lab: Lab, eventually: Eventually, name: str) -> None:
    """A node comes and registers itself."""
    lab.restart(f"kubelet-{name}")
    eventually(lambda: name in ready_nodes(lab), seconds=120)


def ready_nodes(lab: Lab) -> list[str]:
    found = json.loads(lab.kubectl("get", "nodes", "-o", "json"))["items"]
    return [
        node["metadata"]["name"]
        for node in found
        if not node["spec"].get("taints")
        and any(
            c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"]
        )
    ]


def wait_for_refreshes(lab: Lab, eventually: Eventually, count: int = 2) -> None:
    """Until the plugin has asked for the table so often, whatever it was answered."""
    before = eventually(lambda: refreshes(lab), seconds=60)
    eventually(lambda: refreshes(lab) >= before + count, seconds=120)


def refreshes(lab: Lab) -> float:
    try:
        lines = metrics_of_scheduler(lab).splitlines()
    except OSError:  # a machine full of other work; ask again
        return 0.0
    counted = [ln for ln in lines if ln.startswith("pilothouse_scheduler_refreshes_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counted)


def metrics_of_scheduler(lab: Lab) -> str:
    """The scheduler's own counters, asked with the administrator's certificate."""
    planned = lab.planned
    assert planned is not None
    context = ssl.create_default_context(cafile=str(lab.layout.pki / "ca.crt"))
    context.load_cert_chain(lab.layout.pki / "admin.crt", lab.layout.pki / "admin.key")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    url = f"https://127.0.0.1:{planned.ports['kube-scheduler']}/metrics"
    with opener.open(url, timeout=10) as answer:
        return str(answer.read().decode())
