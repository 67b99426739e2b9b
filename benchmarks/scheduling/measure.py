# SPDX-License-Identifier: Apache-2.0
"""One run: pods that wait, a scheduler that starts, and what it took until all have a node."""

from __future__ import annotations

import http
import http.client
import json
import os
import re
import ssl
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.scheduling.arms import scheduler, scorer_answers, scorer_as, site_of, wait
from pilothouse.lab import Lab, process
from pilothouse.lab.layout import API_ADDRESS, API_PORT
from pilothouse.lab.placement import PLUGIN

NAMESPACE = "scheduling"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CREATORS = 6  # connections that pods are created over
TICKS = os.sysconf("SC_CLK_TCK")
CYCLE = "scheduler_scheduling_algorithm_duration_seconds"
CALL = "scheduler_plugin_execution_duration_seconds"


def prepare(lab: Lab) -> None:
    """Pods get a namespace; nobody schedules them yet, and nobody counts or starts them.

    kwok has made its nodes ready; their leases must outlast the runs. It would start pods in bursts
    on the processors that the scheduler runs on, now within a run and now after it.
    """
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    lab.apply(json.dumps(space))
    for name in ("kube-scheduler", "metrics-server", "kube-state-metrics", "kwok"):
        lab.kill(name)


def run(
    lab: Lab, arm: str, number: int, *, turn: int, pods: int, percentage: int
) -> dict[str, Any]:
    """Create the pods of this run, start the arm's scheduler and measure until all are placed.

    They stay where they are: to delete them takes longer than to place them, and its aftermath
    would be measured with the next run.
    """
    names = [f"pod-{number:03d}-{index:05d}" for index in range(pods)]
    _create(lab, names)
    wait(lambda: scorer_answers(lab), 120)
    with scorer_as(lab, arm, turn) as met:
        lab.start(scheduler(site_of(lab), arm, percentage=percentage))
        entry = lab.component("kube-scheduler")
        try:
            with closing(_Server(lab)) as server:
                found = _measure(server, entry.pid, names)
            assert process.is_alive(entry.pid, entry.ticks), "the scheduler died"
        finally:
            lab.kill("kube-scheduler")
    return found | {"arm": arm, "turn": turn, "garbage": dict(met)}


def _create(lab: Lab, names: list[str]) -> None:
    """Over a few connections: one after the other takes as long as to schedule them."""

    def some(part: list[str]) -> None:
        with closing(_connection(lab)) as connection:
            for name in part:
                _ask(connection, "POST", PODS, json.dumps(_pod(name)))

    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(some, [names[first::CREATORS] for first in range(CREATORS)]))


def _pod(name: str) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "128Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {"latencySoftConstraint": "20", "latencyHardConstraint": "30"},
        },
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "none", "resources": {"requests": requests}}],
        },
    }


def _measure(server: _Server, pid: int, names: list[str]) -> dict[str, Any]:
    """From the first scheduled pod to the last.

    The scheduler's own counters are read at both ends only: answering costs it milliseconds, which
    would be counted as scheduling. In between the API server says whether a pod still waits.
    """
    while (before := _placed(server.metrics())) == 0:
        time.sleep(0.05)
    began, cpu_before = time.monotonic(), _cpu_seconds(pid)
    # To ask for one is cheap, to ask whether any waits is not.
    wait(lambda: server.has_node(names[-1]), 600, every=0.05)
    wait(lambda: not server.has_waiting(), 600, every=0.05)
    seconds, cpu = time.monotonic() - began, _cpu_seconds(pid) - cpu_before
    text = server.metrics()
    cycles = r'pilothouse_scheduler_cycles_total\{path="([^"]+)"\} ([0-9.e+]+)'
    return {
        "pods_per_second": (len(names) - before) / seconds,
        "cpu_seconds_per_pod": cpu / (len(names) - before),
        "errors": total(text, "scheduler_schedule_attempts_total", 'result="error"'),
        "panics": total(text, "pilothouse_scheduler_panics_total"),
        "cycle_ms": mean(text, CYCLE),
        "cycle_quantiles_ms": quantiles(text, CYCLE),
        "score_ms": mean(
            text, "scheduler_framework_extension_point_duration_seconds", 'extension_point="Score"'
        ),
        "prescore_ms": quantiles(text, "pilothouse_scheduler_forward_duration_seconds"),
        "plugin_call_ms": plugin_calls(text, PLUGIN),
        "paths": {found[1]: float(found[2]) for found in re.finditer(cycles, text)},
    }


class _Server:
    """What is asked of the API server and of the scheduler while it works."""

    def __init__(self, lab: Lab) -> None:
        planned = lab.planned
        assert planned is not None
        # Kept open: a handshake for every look costs the server more than its answer does.
        self._api = _connection(lab)
        self._scheduler = _connection(lab, f"127.0.0.1:{planned.ports['kube-scheduler']}")

    def close(self) -> None:
        self._api.close()
        self._scheduler.close()

    def has_node(self, pod: str) -> bool:
        return bool(json.loads(_ask(self._api, "GET", f"{PODS}/{pod}"))["spec"].get("nodeName"))

    def has_waiting(self) -> bool:
        query = urllib.parse.urlencode({"fieldSelector": "spec.nodeName=", "limit": 1})
        return bool(json.loads(_ask(self._api, "GET", f"{PODS}?{query}"))["items"])

    def metrics(self) -> str:
        """The scheduler's metrics; not there in the first second."""
        deadline = time.monotonic() + 120
        while True:
            try:
                return _ask(self._scheduler, "GET", "/metrics")
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _connection(
    lab: Lab, address: str = f"{API_ADDRESS}:{API_PORT}"
) -> http.client.HTTPSConnection:
    """To the API server, as its admin, unless another address is given."""
    context = ssl.create_default_context(cafile=str(lab.layout.pki / "ca.crt"))
    context.load_cert_chain(lab.layout.pki / "admin.crt", lab.layout.pki / "admin.key")
    return http.client.HTTPSConnection(address, timeout=30, context=context)


def _ask(
    connection: http.client.HTTPSConnection, verb: str, path: str, body: str | None = None
) -> str:
    try:
        connection.request(verb, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    except OSError:
        connection.close()
        raise
    if answer.status not in (http.HTTPStatus.OK, http.HTTPStatus.CREATED):
        raise OSError(f"{verb} {path}: {answer.status} {answer.reason}")
    return text


def _placed(text: str) -> float:
    return total(text, "scheduler_schedule_attempts_total", 'result="scheduled"')


def total(text: str, name: str, label: str = "") -> float:
    """The sum of a metric's series that carry the label."""
    lines = [ln for ln in text.splitlines() if ln.startswith(name + "{") and label in ln]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def mean(text: str, name: str, label: str = "") -> float | None:
    """A histogram's mean in milliseconds."""
    count = _either(text, f"{name}_count", label)
    return 1000 * _either(text, f"{name}_sum", label) / count if count else None


def _either(text: str, name: str, label: str) -> float:
    """With labels or without."""
    bare = re.search(rf"^{name} (\S+)$", text, re.M)
    return float(bare[1]) if bare and not label else total(text, name, label)


def plugin_calls(text: str, plugin: str) -> dict[str, float]:
    """A plugin's mean time per call in milliseconds, by extension point. The scheduler times the
    calls of a tenth of its cycles; Score is called once for every node."""
    own = "\n".join(line for line in text.splitlines() if f'plugin="{plugin}"' in line)
    points = set(re.findall(rf'^{CALL}_count{{.*?extension_point="([^"]+)"', own, re.M))
    means = {point: mean(own, CALL, f'extension_point="{point}"') for point in sorted(points)}
    return {point: value for point, value in means.items() if value is not None}


def quantiles(text: str, name: str) -> dict[str, float]:
    """Median and 99th percentile from a histogram's buckets, in milliseconds, interpolated."""
    buckets: dict[float, float] = {}
    for line in text.splitlines():
        if line.startswith(name + "_bucket{"):
            found = re.search(r'le="([^"]+)"', line)
            assert found is not None
            edge = float(found[1].replace("+Inf", "inf"))
            buckets[edge] = buckets.get(edge, 0.0) + float(line.rsplit(" ", 1)[1])
    edges = sorted(buckets)
    if not edges or buckets[edges[-1]] == 0:
        return {}
    return {
        key: 1000 * _quantile(edges, buckets, share) for key, share in (("p50", 0.5), ("p99", 0.99))
    }


def _quantile(edges: list[float], buckets: dict[float, float], share: float) -> float:
    wanted = share * buckets[edges[-1]]
    below, before = 0.0, 0.0
    for edge in edges:
        if buckets[edge] >= wanted:
            if edge == float("inf"):
                return below
            inside = buckets[edge] - before
            return below + (edge - below) * (wanted - before) / inside if inside else edge
        below, before = edge, buckets[edge]
    return below


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
