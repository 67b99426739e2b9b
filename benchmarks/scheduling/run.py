# SPDX-License-Identifier: Apache-2.0
"""Throughput of the learned scheduler against the stock one, on a real API server with fake nodes.

Run as root from the repository root: ``python -m benchmarks.scheduling.run``. Pods are created
first and the scheduler is started after, so that only scheduling is measured. The arms alternate;
ratios are of neighbors. Exits non-zero when a bound is missed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import ssl
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scheduling.arms import ARMS, scheduler, scorer_as, site_of
from pilothouse import policy
from pilothouse.errors import LabFailed
from pilothouse.home import home
from pilothouse.lab import Lab, Wish, process
from pilothouse.testing.placement import random_policy

HERE = Path(__file__).parent
NAMESPACE = "scheduling"
TICKS = os.sysconf("SC_CLK_TCK")
BOUNDS = {"ratio": 0.95, "ratio_low": 0.90, "cpu": 1.08, "median_ms": 0.4, "p99_ms": 1.5}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=8, help="of each arm")
    parser.add_argument("--arms", default="stock,plugin", help=f"of {', '.join(ARMS)}")
    parser.add_argument("--percentage", type=int, default=100, help="of nodes to score, all arms")
    parser.add_argument("--policy", default="", help="a policy's name or file")
    arguments = parser.parse_args()
    arms = arguments.arms.split(",")
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(home() / "lab")
        named = arguments.policy or _policy(Path(folder))
        wish = Wish(workers=0, fake_nodes=arguments.nodes, scheduler="pilothouse", policy=named)
        lab.up(wish, say=lambda text: print(f"lab: {text}", file=sys.stderr))
        try:
            runs = _alternate(lab, arms, arguments)
        finally:
            lab.down()
    summary = {arm: _summary(arm, runs) for arm in arms}
    _write(arguments, named, runs, summary)
    _print(summary)
    missed = [text for arm in arms for text in _missed(arm, summary[arm])]
    for text in missed:
        print(f"missed: {text}")
    return 1 if missed else 0


def _policy(folder: Path) -> str:
    """The shipped policy, or a network of the same size with random weights while there is none."""
    if "el-rl" in policy.shipped_names():
        return "el-rl"
    random_policy(folder)
    return str(folder / "fixture")


def _alternate(lab: Lab, arms: list[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    lab.apply(json.dumps(space))
    lab.kill("kube-scheduler")
    runs = []
    for turn in range(arguments.runs):
        order = arms if turn % 2 == 0 else arms[::-1]
        for arm in order:
            found = _run(lab, arm, arguments)
            runs.append(found | {"arm": arm, "turn": turn})
            print(
                f"run {turn + 1} {arm}: {found['pods_per_second']:.0f} pods/s, "
                f"{1000 * found['cpu_seconds_per_pod']:.2f} ms CPU per pod",
                file=sys.stderr,
            )
    return runs


def _run(lab: Lab, arm: str, arguments: argparse.Namespace) -> dict[str, Any]:
    _create(lab, arguments.pods)
    with scorer_as(lab, arm):
        lab.start(scheduler(site_of(lab), arm, percentage=arguments.percentage))
        entry = lab.component("kube-scheduler")
        try:
            found = _measure(lab, entry.pid, arguments.pods)
            assert process.is_alive(entry.pid, entry.ticks), "the scheduler died"
        finally:
            lab.kill("kube-scheduler")
    _wait(lambda: _deleted(lab), 600, every=1.0)
    return found


def _deleted(lab: Lab) -> bool:
    """One DELETE on the collection; a slow server may need several."""
    with suppress(LabFailed):
        lab.kubectl("delete", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
    return _count(lab) == 0


def _create(lab: Lab, count: int) -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"pod-{i}",
                "namespace": NAMESPACE,
                "annotations": {"latencySoftConstraint": "20", "latencyHardConstraint": "30"},
            },
            "spec": {
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {
                        "name": "c",
                        "image": "none",
                        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                    }
                ],
            },
        }
        for i in range(count)
    ]
    lab.kubectl("create", "-f", "-", text="\n".join(json.dumps(pod) for pod in pods))


def _count(lab: Lab) -> int:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?limit=1&resourceVersion="
    found = json.loads(lab.kubectl("get", "--raw", path))
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))


def _measure(lab: Lab, pid: int, pods: int) -> dict[str, Any]:
    """From the first scheduled pod to the last.

    The scheduler's own counters are read at both ends only: answering costs it milliseconds, which
    would be counted as scheduling. In between the API server says whether a pod still waits.
    """
    metrics, waiting = _Metrics(lab), _Waiting(lab)
    while (done := _scheduled(metrics.text())) == 0:
        time.sleep(0.05)
    began, placed_before, cpu_before = time.monotonic(), done, _cpu_seconds(pid)
    _wait(lambda: not waiting.some(), 600, every=0.05)
    seconds, cpu = time.monotonic() - began, _cpu_seconds(pid) - cpu_before
    text = metrics.text()
    placed = pods - placed_before
    return {
        "pods_per_second": placed / seconds,
        "cpu_seconds_per_pod": cpu / placed,
        "errors": _sum(text, "scheduler_schedule_attempts_total", 'result="error"'),
        "algorithm_ms": _quantiles(text, "scheduler_scheduling_algorithm_duration_seconds", ""),
        "prescore_ms": _quantiles(text, "pilothouse_scheduler_forward_duration_seconds", ""),
        "paths": {
            m[1]: float(m[2])
            for m in re.finditer(
                r'pilothouse_scheduler_cycles_total\{path="([^"]+)"\} ([0-9.e+]+)', text
            )
        },
    }


def _opener(lab: Lab) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=str(lab.layout.pki / "ca.crt"))
    context.load_cert_chain(lab.layout.pki / "admin.crt", lab.layout.pki / "admin.key")
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )


class _Waiting:
    """Whether any pod has no node yet; one item at most is asked for."""

    def __init__(self, lab: Lab) -> None:
        self._opener = _opener(lab)
        query = "fieldSelector=spec.nodeName%3D&limit=1"
        self._url = f"{lab.status()['api']}/api/v1/namespaces/{NAMESPACE}/pods?{query}"

    def some(self) -> bool:
        with self._opener.open(self._url, timeout=30) as answer:
            return bool(json.loads(answer.read())["items"])


class _Metrics:
    """The scheduler's metrics endpoint; not there in the first second."""

    def __init__(self, lab: Lab) -> None:
        planned = lab.planned
        assert planned is not None
        self._opener = _opener(lab)
        self._url = f"https://127.0.0.1:{planned.ports['kube-scheduler']}/metrics"

    def text(self) -> str:
        deadline = time.monotonic() + 120
        while True:
            try:
                with self._opener.open(self._url, timeout=10) as answer:
                    return str(answer.read().decode())
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _scheduled(text: str) -> float:
    return _sum(text, "scheduler_schedule_attempts_total", 'result="scheduled"')


def _sum(text: str, name: str, label: str) -> float:
    lines = [ln for ln in text.splitlines() if ln.startswith(name + "{") and label in ln]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def _quantiles(text: str, name: str, label: str) -> dict[str, float]:
    """Median and 99th percentile from a histogram's buckets, in milliseconds, interpolated."""
    buckets: dict[float, float] = {}
    for line in text.splitlines():
        if line.startswith(name + "_bucket{") and label in line:
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


def _wait(done: Callable[[], bool], seconds: float, *, every: float = 0.2) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds:g} s")
        time.sleep(every)


def _summary(arm: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    own = [run for run in runs if run["arm"] == arm]
    stock = {run["turn"]: run for run in runs if run["arm"] == "stock"}
    ratios = [r["pods_per_second"] / stock[r["turn"]]["pods_per_second"] for r in own if stock]
    costs = [
        r["cpu_seconds_per_pod"] / stock[r["turn"]]["cpu_seconds_per_pod"] for r in own if stock
    ]
    low, high = _interval(ratios)
    return {
        "runs": len(own),
        "pods_per_second": statistics.median(r["pods_per_second"] for r in own),
        "cpu_ms_per_pod": 1000 * statistics.median(r["cpu_seconds_per_pod"] for r in own),
        "ratio": statistics.median(ratios) if ratios else None,
        "ratio_low": low,
        "ratio_high": high,
        "cpu_ratio": statistics.median(costs) if costs else None,
        "prescore_p50_ms": _median(r["prescore_ms"].get("p50") for r in own),
        "prescore_p99_ms": _median(r["prescore_ms"].get("p99") for r in own),
        "algorithm_p50_ms": _median(r["algorithm_ms"].get("p50") for r in own),
        "errors": sum(r["errors"] for r in own),
        "paths": own[-1]["paths"] if own else {},
    }


def _median(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _interval(ratios: list[float]) -> tuple[float | None, float | None]:
    """95 % interval of the median, by resampling the pairs."""
    if len(ratios) < 2:
        return None, None
    random = np.random.default_rng(0)
    drawn = random.choice(ratios, (4000, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def _missed(arm: str, found: dict[str, Any]) -> list[str]:
    if arm in ("stock", "extender") or found["ratio"] is None:
        return []
    needed = BOUNDS["ratio"] if arm == "plugin" else 0.90
    checks = {
        f"{arm}: ratio {found['ratio']:.3f}, needs {needed}": found["ratio"] >= needed,
        f"{arm}: {found['errors']:.0f} pods failed": found["errors"] == 0,
    }
    if arm == "plugin":
        checks |= {
            f"ratio's lower bound {found['ratio_low']}": (found["ratio_low"] or 0)
            >= BOUNDS["ratio_low"],
            f"CPU {found['cpu_ratio']:.3f} x stock": found["cpu_ratio"] <= BOUNDS["cpu"],
            f"PreScore median {found['prescore_p50_ms']} ms": (found["prescore_p50_ms"] or 9)
            <= BOUNDS["median_ms"],
            f"PreScore p99 {found['prescore_p99_ms']} ms": (found["prescore_p99_ms"] or 9)
            <= BOUNDS["p99_ms"],
        }
    return [text for text, holds in checks.items() if not holds]


def _write(arguments: Any, named: str, runs: list[Any], summary: dict[str, Any]) -> None:
    content = {
        "date": datetime.date.today().isoformat(),
        "nodes": arguments.nodes,
        "pods": arguments.pods,
        "percentage_of_nodes_to_score": arguments.percentage,
        "policy": Path(named).name,
        "summary": summary,
        "runs": runs,
    }
    (HERE / "results.json").write_text(json.dumps(content, indent=1) + "\n")


def _print(summary: dict[str, Any]) -> None:
    print("| arm | runs | pods/s | × stock | 95 % | CPU ms/pod | × stock | PreScore p50 | p99 ms |")
    print("|---|---:|---:|---:|---|---:|---:|---:|---:|")
    for arm, s in summary.items():
        spread = f"{s['ratio_low']:.2f}–{s['ratio_high']:.2f}" if s["ratio_low"] else ""
        print(
            f"| {arm} | {s['runs']} | {s['pods_per_second']:.0f} | {_cell(s['ratio'])} | "
            f"{spread} | "
            f"{s['cpu_ms_per_pod']:.2f} | {_cell(s['cpu_ratio'])} | "
            f"{_cell(s['prescore_p50_ms'])} | {_cell(s['prescore_p99_ms'])} |"
        )


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main())
