# SPDX-License-Identifier: Apache-2.0
"""The lab is a real cluster: nodes, pods, isolation, autoscaling."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from pilothouse.lab import Lab
from pilothouse.lab.cgroup import used_seconds
from tests.live.conftest import a_deployment, is_ready

Pods = Callable[[str], list[dict[str, Any]]]


def fetch(url: str, *, post: bool = False) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, method="POST" if post else "GET")
    with opener.open(request, timeout=10) as answer:
        return str(answer.read().decode())


def test_workers_are_ready_and_pods_run_on_each_of_them(
    lab: Lab, space: Callable[..., None], pods: Pods, eventually: Callable[..., Any]
) -> None:
    def workers() -> list[str]:
        nodes = lab.status()["nodes"]
        return [n["name"] for n in nodes if n["kind"] == "worker" and n["ready"]]

    eventually(lambda: workers() == ["worker-1", "worker-2", "worker-3"])
    for number in (1, 2, 3):
        space(a_deployment(f"on-{number}", node=f"worker-{number}"))
    for number in (1, 2, 3):
        eventually(lambda n=number: [p for p in pods(f"on-{n}") if is_ready(p)])
    address = pods("on-1")[0]["status"]["podIP"]
    assert fetch(f"http://{address}:8000/").strip() == "done"


def test_burner_saturates_its_worker_and_slows_no_other(
    lab: Lab, space: Callable[..., None], pods: Pods, eventually: Callable[..., Any]
) -> None:
    for number in (1, 2):
        space(a_deployment(f"victim-{number}", node=f"worker-{number}"))
    space(a_deployment("burner", node="worker-1", arguments=("--train-step=0",)))
    for name in ("victim-1", "victim-2", "burner"):
        eventually(lambda n=name: [p for p in pods(n) if is_ready(p)])
    # What a machine that stalls for a moment adds is in one round; a burner's is in both.
    before = {n: min(_latencies(pods(f"victim-{n}")[0])) for n in (1, 2)}
    fetch(f"http://{pods('burner')[0]['status']['podIP']}:8000/burn?millicores=2000", post=True)
    sleep(2)
    workers = lab.workers()
    used, began = [used_seconds(w.cgroup) for w in workers], monotonic()
    after = {n: _latencies(pods(f"victim-{n}")[0]) for n in (1, 2)}
    sleep(max(began + 5 - monotonic(), 0))
    seconds = monotonic() - began
    cores = [(used_seconds(w.cgroup) - u) / seconds for w, u in zip(workers, used, strict=True)]
    share = workers[0].cpu_millicores / 1000
    assert 0.8 * share <= cores[0] <= 1.1 * share, cores
    assert cores[1] < 0.5 * share, cores
    assert min(after[1]) > 2 * before[1], (before, after)  # the control: its neighbor suffers
    assert min(after[2]) < 2 * before[2] + 0.02, (before, after)


def _latencies(pod: dict[str, Any]) -> list[float]:
    """Mean seconds of a request, as its caller sees it, in each of two rounds."""
    return [_latency(f"http://{pod['status']['podIP']}:8000/") for _ in range(2)]


def _latency(address: str) -> float:
    """Spaced unevenly: one after the other would fall into step with the kernel's quota periods."""
    took = []
    for number in range(24):
        sleep(0.017 + 0.007 * (number % 5))
        began = monotonic()
        fetch(address)
        took.append(monotonic() - began)
    return sum(took) / len(took)


def test_memory_growth_ends_in_an_oom_kill(
    space: Callable[..., None], pods: Pods, eventually: Callable[..., Any]
) -> None:
    limits = {"memory": "48Mi", "cpu": "200m"}
    space(a_deployment("hoarder", limits=limits))
    pod = eventually(lambda: [p for p in pods("hoarder") if is_ready(p)])[0]
    address = pod["status"]["podIP"]

    def killed() -> bool:
        statuses = pods("hoarder")[0]["status"].get("containerStatuses", [{}])
        ended = [s.get("lastState", {}).get("terminated", {}) for s in statuses]
        ended += [s.get("state", {}).get("terminated", {}) for s in statuses]
        if any(t.get("reason") == "OOMKilled" for t in ended):
            return True
        # Again if need be: containerd may hear of the end before it hears of its reason.
        # It dies while it answers, which is the point.
        with contextlib.suppress(OSError, HTTPException):
            fetch(f"http://{address}:8000/memory?mib=200", post=True)
        return False

    assert eventually(killed)


def test_load_generator_counts_every_request(
    lab: Lab, space: Callable[..., None], pods: Pods, eventually: Callable[..., Any]
) -> None:
    space(a_deployment("served", replicas=2))
    eventually(lambda: len([p for p in pods("served") if is_ready(p)]) == 2)
    urls = [f"http://{p['status']['podIP']}:8000/" for p in pods("served")]
    gone = "http://10.197.9.9:8000/"  # no such bridge: the blackhole answers at once
    with ThreadPoolExecutor() as pool:
        tallies = list(pool.map(partial(_load, lab), [urls, [gone]]))
    for tally in tallies:
        fates = ("answered", "refused", "failed", "late", "unsent")
        assert tally["due"] == sum(tally[fate] for fate in fates)
        assert tally["due"] > 20
    assert tallies[0]["answered"] == tallies[0]["due"]
    assert tallies[1]["refused"] == tallies[1]["due"]


def _load(lab: Lab, urls: list[str]) -> dict[str, Any]:
    # Patient: a machine that stalls for two seconds is not what is counted here.
    command = [str(lab.layout.binaries / "workload"), "load", "-shape=20x3s", "-timeout=20s"]
    done = subprocess.run([*command, f"-urls={','.join(urls)}"], capture_output=True, check=True)
    return dict(json.loads(done.stdout))


def test_squeezed_worker_has_less_without_saying_so(
    lab: Lab, space: Callable[..., None], pods: Pods, eventually: Callable[..., Any]
) -> None:
    space(a_deployment("busy", node="worker-3", arguments=("--burn-millicores=2000",)))
    eventually(lambda: [p for p in pods("busy") if is_ready(p)])
    worker = lab.workers()[2]
    lab.squeeze("worker-3", 100)
    try:
        sleep(1)
        used, began = used_seconds(worker.cgroup), monotonic()
        sleep(4)
        cores = (used_seconds(worker.cgroup) - used) / (monotonic() - began)
    finally:
        lab.squeeze("worker-3", worker.cpu_millicores)
    assert cores < 0.13
    node = json.loads(lab.kubectl("get", "node", "worker-3", "-o", "json"))
    assert node["status"]["allocatable"]["cpu"] == f"{worker.cpu_millicores}m"


def test_meter_reads_a_worker_of_cgroup_version_2(
    lab: Lab, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """On a tree of ordinary files: the lab's own kernel may have version 1."""
    group = tmp_path / "pilothouse-lab" / "worker-1"
    group.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    cpu, quota = group / "cpu.stat", group / "cpu.max"
    cpu.write_text("usage_usec 1000000\nuser_usec 1000000\n")
    quota.write_text("max 100000\n")
    (group / "memory.current").write_text(f"{100 << 20}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {40 << 20}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ("--cgroup=/pilothouse-lab/worker-1", "--cpu-millicores=500", "--memory-mib=512")
    words = (f"--listen={address}", f"--cgroup-mount={tmp_path}", *options)
    with subprocess.Popen([str(lab.layout.binaries / "workload"), "meter", *words]) as meter:
        try:
            read = partial(_metered, address)
            first = eventually(read, seconds=10, every=0.1)
            assert first["node_memory_MemTotal_bytes"] == 512 << 20
            assert first["node_memory_MemAvailable_bytes"] == (512 - 60) << 20
            assert first['node_cpu_seconds_total{cpu="0",mode="user"}'] == 0
            assert first['node_cpu_seconds_total{cpu="0",mode="steal"}'] == 0  # no quota at all
            cpu.write_text("usage_usec 1250000\nuser_usec 1250000\n")
            assert read()['node_cpu_seconds_total{cpu="0",mode="user"}'] == 0.5  # of half a core
            quota.write_text("12500 100000\n")  # a quarter of what it advertises
            read()
            began = read()['node_cpu_seconds_total{cpu="0",mode="steal"}']
            sleep(0.4)
            assert read()['node_cpu_seconds_total{cpu="0",mode="steal"}'] - began >= 0.75 * 0.4
        finally:
            meter.terminate()


def _metered(address: str) -> dict[str, float]:
    """What a meter says; nothing while it starts."""
    try:
        page = fetch(f"http://{address}/metrics")
    except OSError:
        return {}
    rows = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}
