# SPDX-License-Identifier: Apache-2.0
"""What the loop costs and how far its cache lags, seen from outside its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.live_scale.population import MARKED, NAMESPACE, Churn, Crowd, Lane
from pilothouse.clients.access import from_kubeconfig

CYCLE_LIMIT_MS = 1000.0
MEMORY_LIMIT_MIB = 512.0
CPU_LIMIT_CORES = 1.0
LAG_LIMIT_SECONDS = 2.0
MARK_SECONDS = 0.2
SYNC_SECONDS = 300.0
WARM_CYCLES = 3  # the first looks compute every row; they are reported, not in the percentiles


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One run, measured."""

    nodes: int
    pods: int
    seconds: float
    changes_per_second: float  # deletions and creations of pods
    cycles: int
    cycle_median_ms: float
    cycle_p99_ms: float
    cycle_worst_ms: float
    first_cycle_ms: float
    steps_median_ms: dict[str, float]
    memory_peak_mib: float
    cpu_cores: float
    marks: int
    marks_lost: int
    lag_median_seconds: float
    lag_p99_seconds: float
    lag_worst_seconds: float
    sync_seconds: float
    load_average: float  # of the machine meanwhile: what else it had to do

    def misses(self) -> list[str]:
        """Which limits were not kept, with the numbers."""
        rows = (
            ("cycle p99", self.cycle_p99_ms, CYCLE_LIMIT_MS, "ms"),
            ("memory", self.memory_peak_mib, MEMORY_LIMIT_MIB, "MiB"),
            ("processor", self.cpu_cores, CPU_LIMIT_CORES, "cores"),
            ("cache lag p99", self.lag_p99_seconds, LAG_LIMIT_SECONDS, "s"),
            ("marks that never arrived", self.marks_lost, 0, ""),
        )
        return [f"{n}: {v:.2f} {u} (limit {most:g})" for n, v, most, u in rows if v > most]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Marker:
    """Writes a numbered mark to one pod again and again, and remembers when each was sent.

    Lag is counted from the moment before the request leaves, so it includes the write itself.
    """

    crowd: Crowd
    sent: dict[int, float] = field(default_factory=dict)
    problem: BaseException | None = None
    _end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="marker")

    def __enter__(self) -> Marker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        lane = Lane(from_kubeconfig(self.crowd.lab.layout.kubeconfig))
        pod = f"/api/v1/namespaces/{NAMESPACE}/pods/marked"
        try:
            while not self._end.wait(MARK_SECONDS):
                mark = len(self.sent) + 1
                body = {"metadata": {"annotations": {MARKED: str(mark)}}}
                self.sent[mark] = time.monotonic()
                lane.ask("PATCH", pod, body, "merge-patch+json")
        except BaseException as error:  # raised by whoever measures
            self.problem = error
        finally:
            lane.close()


@contextmanager
def marked_pod(crowd: Crowd) -> Iterator[None]:
    """A pod that no churn touches."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "marked", "annotations": {MARKED: "0"}},
        "spec": {
            "schedulingGates": [{"name": "pilothouse.dev/bench"}],
            "containers": [{"name": "none", "image": "none"}],
        },
    }
    crowd.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    try:
        yield
    finally:
        crowd.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/marked?gracePeriodSeconds=0")


class Observed:
    """``pilothouse up`` as its own process, read line by line."""

    def __init__(self, kubeconfig: Path, folder: Path, *, interval: float) -> None:
        self.notes = folder / "notes.jsonl"
        self.lines: list[dict[str, Any]] = []
        words = [sys.executable, "-m", "benchmarks.live_scale.watched", str(self.notes), "up"]
        words += ["--kubeconfig", str(kubeconfig), "--interval", str(interval), "--json"]
        words += ["--journal", str(folder / "live.db"), "--port", "0"]
        self._said = (folder / "said.txt").open("w+")
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=self._said, text=True, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, name="reader")
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                if line.startswith("{") and '"wall_ms"' in line:
                    self.lines.append(json.loads(line))

    def wait_cycles(self, count: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self.lines) < count:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._said.seek(0)
                raise RuntimeError(
                    f"{len(self.lines)} of {count} cycles: {self._said.read()[-2000:]}"
                )
            time.sleep(0.05)

    def cpu_seconds(self) -> float:
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the kernel does not say VmHWM")

    def noted(self, key: str) -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in self.notes.read_text().splitlines()]
        return [row for row in rows if key in row]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        self._said.close()


def measure(
    crowd: Crowd,
    kubeconfig: Path,
    folder: Path,
    *,
    seconds: float,
    changes_per_second: float = 20.0,
    interval: float = 1.0,
    meanwhile: Callable[[Observed, float], None] = lambda _observed, seconds: time.sleep(seconds),
) -> Figures:
    """Run the loop on the crowd while it changes. ``meanwhile`` waits, or disturbs."""
    with marked_pod(crowd):
        observed = Observed(kubeconfig, folder, interval=interval)
        try:
            observed.wait_cycles(WARM_CYCLES, SYNC_SECONDS)
            with Churn(crowd, per_second=changes_per_second) as churn, Marker(crowd) as marker:
                began, cpu = time.monotonic(), observed.cpu_seconds()
                meanwhile(observed, seconds)
                took, used = time.monotonic() - began, observed.cpu_seconds() - cpu
            for helper in (churn, marker):
                if helper.problem is not None:
                    raise helper.problem
            time.sleep(LAG_LIMIT_SECONDS)  # what was sent last may still arrive
            peak = observed.peak_mib()
        finally:
            observed.stop()
    seen = {row["mark"]: row["at"] for row in observed.noted("mark")}
    lags = np.array([seen[m] - at for m, at in marker.sent.items() if m in seen])
    lines = observed.lines[WARM_CYCLES:]
    wall = np.array([line["wall_ms"] for line in lines])
    steps: dict[str, list[float]] = {}
    for line in lines:
        for step, spent in line["steps_ms"].items():
            steps.setdefault(step, []).append(spent)
    return Figures(
        nodes=crowd.nodes,
        pods=crowd.pods,
        seconds=round(took, 1),
        changes_per_second=round(2 * churn.deleted / took, 1),
        cycles=len(lines),
        cycle_median_ms=round(float(np.median(wall)), 1),
        cycle_p99_ms=round(float(np.percentile(wall, 99)), 1),
        cycle_worst_ms=round(float(wall.max()), 1),
        first_cycle_ms=round(observed.lines[0]["wall_ms"], 1),
        steps_median_ms={step: round(float(np.median(ms)), 1) for step, ms in steps.items()},
        memory_peak_mib=round(peak, 1),
        cpu_cores=round(used / took, 3),
        marks=len(marker.sent),
        marks_lost=len(marker.sent) - len(lags),
        lag_median_seconds=round(float(np.median(lags)), 3),
        lag_p99_seconds=round(float(np.percentile(lags, 99)), 3),
        lag_worst_seconds=round(float(lags.max()), 3),
        sync_seconds=round(observed.noted("synced_seconds")[0]["synced_seconds"], 2),
        load_average=round(os.getloadavg()[0], 1),
    )
