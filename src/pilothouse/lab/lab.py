# SPDX-License-Identifier: Apache-2.0
"""The lab as a whole: up, a look at it, single components, down.

``up`` writes into the ledger before it makes anything. When something does not come up, what was
made is taken away again and the error quotes the component's last words; logs stay.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.errors import LabFailed, LabUnavailable, UnknownName
from pilothouse.lab import (
    cgroup,
    controlplane,
    fake,
    machine,
    monitoring,
    network,
    placement,
    process,
    reaper,
    worker,
)
from pilothouse.lab.build import Binaries, Progress, obtain
from pilothouse.lab.component import Component, Site
from pilothouse.lab.image import PAUSE_IMAGE, WORKLOAD_IMAGE, write_image
from pilothouse.lab.layout import (
    API_ADDRESS,
    API_PORT,
    BRIDGE,
    MAXIMUM_WORKERS,
    POD_RANGE,
    SERVICE_RANGE,
    Layout,
    Worker,
)
from pilothouse.lab.ledger import Grouped, Ledger, Opened, Planned, Ready, Started, locked
from pilothouse.lab.part import PARTS, SCHEDULER, Part
from pilothouse.lab.reaper import Leftovers

Say = Callable[[str], None]
PORTS = (
    "etcd",
    "etcd-peer",
    "kube-controller-manager",
    "kube-scheduler",
    "metrics-server",
    "kube-state-metrics",
    "kube-state-metrics-self",
    "prometheus",
    "targets",
    "scorer",
)
FIRST_PORT = 16440
CROWD = 100  # from so many fake nodes on, one process renews their leases none too fast
LOST_SECONDS = 20  # shorter than Kubernetes' own 50, so that a lost node shows within a test
START_SECONDS = 90.0
READY_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What ``up`` is asked for."""

    workers: int = 3
    fake_nodes: int = 0
    fake_lease_seconds: int | None = None  # of a heartbeat; None: as long as the number asks for
    prometheus: bool = False
    worker_cpu_millicores: int | None = None  # None: an equal share of the machine
    worker_memory_mib: int | None = None
    binaries: Path | None = None  # a folder of release binaries; None: build
    scheduler: str = "stock"
    policy: str = ""  # a shipped one's name or a file, with our scheduler
    profile: str = ""  # one of deploy/scheduler; empty: the one named like the policy

    def check(self) -> None:
        if self.scheduler not in placement.SCHEDULERS:
            raise UnknownName.among("scheduler", self.scheduler, placement.SCHEDULERS)
        for option, given in (("--policy", self.policy), ("--profile", self.profile)):
            if given and self.scheduler == "stock":
                raise LabUnavailable(
                    f"The stock scheduler takes no {option}. Add: --scheduler pilothouse."
                )
        if self.profile:
            placement.check_profile(self.profile)
        if not 0 <= self.workers <= MAXIMUM_WORKERS:
            raise LabUnavailable(
                f"--workers must be between 0 and {MAXIMUM_WORKERS}, but got {self.workers}."
            )
        if not 0 <= self.fake_nodes <= 10_000:
            raise LabUnavailable(
                f"--fake-nodes must be between 0 and 10000, but got {self.fake_nodes}."
            )


def _quiet(_text: str) -> None:
    pass


class Lab:
    """One lab below one folder. Objects of this class hold nothing: the ledger does."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root.resolve())
        self.ledger = Ledger(self.layout.ledger)

    # Coming up

    def build(
        self,
        *,
        given: Path | None = None,
        progress: Progress | None = None,
        parts: Sequence[Part] = PARTS,
    ) -> Binaries:
        """Make sure that every binary is there."""
        if progress is None:
            return obtain(self.layout.binaries, given=given, parts=parts)
        return obtain(self.layout.binaries, given=given, progress=progress, parts=parts)

    def up(self, wish: Wish, *, say: Say = _quiet, progress: Progress | None = None) -> None:
        """Bring a lab up; in one that is up already and whole, at most the policy changes."""
        wish.check()
        wish = replace(wish, policy=placement.resolved(wish.policy) if wish.policy else "")
        machine.require(prometheus=wish.prometheus)
        with locked(self.layout.lock):
            if self._is_up(wish):
                say("up already")
                self._adapt(wish, say, progress)
                return
            parts = (*PARTS, SCHEDULER) if wish.scheduler == "pilothouse" else PARTS
            binaries = self.build(given=wish.binaries, progress=progress, parts=parts)
            with self._undone_on_failure():
                self._make(wish, binaries, say)

    def _is_up(self, wish: Wish) -> bool:
        left = reaper.find(self.layout)
        if not left.sentence:
            return False
        planned = self.planned
        dead = [p.name for p in self.processes() if process.state(p.pid, p.ticks) == "dead"]
        if planned is None or not self.ledger.of(Ready):
            raise LabUnavailable(
                f"There are remains of another lab on this machine: {left.sentence}. "
                "Take them away with: pilothouse lab down."
            )
        if dead:
            raise LabUnavailable(
                f"The lab is up but {', '.join(dead)} died. See {self.layout.logs}, "
                "then: pilothouse lab down."
            )
        same = (planned.workers, planned.fake_nodes) == (wish.workers, wish.fake_nodes)
        same = same and planned.scheduler == wish.scheduler
        same = same and wish.fake_lease_seconds in (None, planned.fake_lease_seconds)
        same = same and wish.worker_cpu_millicores in (None, planned.worker_cpu_millicores)
        same = same and wish.worker_memory_mib in (None, planned.worker_memory_mib)
        if not same or (wish.prometheus and not planned.prometheus):
            raise LabUnavailable(
                f"A lab with {planned.workers} workers of {planned.worker_cpu_millicores}m and "
                f"{planned.worker_memory_mib} MiB, {planned.fake_nodes} fake nodes and "
                f"{'' if planned.prometheus else 'no '}Prometheus under the {planned.scheduler} "
                "scheduler is up already. "
                "Take it away first with: pilothouse lab down."
            )
        return True

    def _adapt(self, wish: Wish, say: Say, progress: Progress | None) -> None:
        """Serve another policy, or another profile, where one was asked for."""
        planned = self._require_planned()
        if planned.scheduler == "stock":
            return
        policy, profile = _wanted(wish, planned)
        if (policy, profile) == (planned.policy, planned.profile):
            return
        say(f"scorer and scheduler again, with policy {policy} and profile {profile}")
        parts = (*PARTS, SCHEDULER)
        binaries = self.build(given=wish.binaries, progress=progress, parts=parts)
        site = Site(layout=self.layout, binaries=binaries, ports=planned.ports)
        self.reschedule(
            placement.scheduler(site, profile),
            placement.scorer(site, policy, prometheus=planned.prometheus),
        )
        self.plan(policy=policy, profile=profile)

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            reaper.reap(self.layout)
            raise

    def _make(self, wish: Wish, binaries: Binaries, say: Say) -> None:
        began = time.monotonic()
        shutil.rmtree(self.layout.logs, ignore_errors=True)
        self.layout.logs.mkdir(parents=True)
        cpu, memory = machine.share(max(wish.workers, 1))
        policy, profile = _wanted(wish, None) if wish.scheduler != "stock" else ("", "")
        planned = Planned(
            workers=wish.workers,
            worker_cpu_millicores=wish.worker_cpu_millicores or cpu,
            worker_memory_mib=wish.worker_memory_mib or memory,
            fake_nodes=wish.fake_nodes,
            fake_lease_seconds=wish.fake_lease_seconds or fake.lease_seconds(wish.fake_nodes),
            prometheus=wish.prometheus,
            ports=_free_ports(),
            origin=dict(binaries.origin),
            scheduler=wish.scheduler,
            policy=policy,
            profile=profile,
        )
        network.check_ranges()
        self.ledger.forget()
        self.ledger.append(planned)
        workers = workers_of(planned)
        site = Site(layout=self.layout, binaries=binaries, ports=planned.ports)
        say("network, cgroups and certificates")
        self._prepare(workers)
        say("etcd and API server")
        self._control_plane(site, planned)
        if wish.scheduler == "stock":
            self.start(controlplane.scheduler(site))
        else:
            say("scorer and scheduler")
            self._learned_scheduler(site, workers, planned)
        if workers:
            say(f"{len(workers)} workers")
            self._workers(site, workers)
        say("metrics")
        self._monitoring(site, workers, planned)
        if planned.fake_nodes:
            say(f"{planned.fake_nodes} fake nodes")
            self._fake_nodes(planned.fake_nodes)
        say("waiting until every node is ready")
        self._wait_ready(planned)
        if planned.prometheus:
            self._wait_port("prometheus", "127.0.0.1", planned.ports["prometheus"])
        shutil.copyfile(self.layout.pki / "admin.kubeconfig", self.layout.kubeconfig)
        self.layout.kubeconfig.chmod(0o600)
        self.ledger.append(Ready(seconds=round(time.monotonic() - began, 1)))

    def _prepare(self, workers: Sequence[Worker]) -> None:
        for folder in worker.PRIVATE_FOLDERS:  # places to mount on; nothing is written to them
            if not folder.exists():
                self.ledger.append(Opened(path=str(folder)))
                folder.mkdir()
        network.tune(self.ledger)
        for target in (POD_RANGE, SERVICE_RANGE, fake.FAKE_RANGE):
            network.blackhole(self.ledger, target)
        network.bridge(self.ledger, f"{BRIDGE}0", f"{API_ADDRESS}/32")
        for path in (cgroup.SYSTEM, *(w.cgroup for w in workers)):
            self.ledger.append(Grouped(path=path))
            cgroup.make(path)
        cgroup.give_weight()
        for one in workers:
            cgroup.limit(one.cgroup, cpu_millicores=one.cpu_millicores, memory_mib=one.memory_mib)
            network.bridge(self.ledger, one.bridge, f"{one.address}/24")
        controlplane.issue(self.layout, list(workers))

    def _control_plane(self, site: Site, planned: Planned) -> None:
        self.start(controlplane.etcd(site))
        self._wait_port("etcd", "127.0.0.1", site.ports["etcd"])
        self.start(controlplane.apiserver(site))
        self._wait_for("kube-apiserver", START_SECONDS, self._api_ready)
        heartbeats_are_rare = planned.fake_nodes > CROWD or (
            planned.fake_lease_seconds > fake.lease_seconds(planned.fake_nodes)
        )
        patience = 10 + planned.fake_lease_seconds if heartbeats_are_rare else LOST_SECONDS
        self.start(controlplane.controller_manager(site, patience=patience))
        self.apply((controlplane.MANIFESTS / "roles.yaml").read_text())

    def _learned_scheduler(self, site: Site, workers: Sequence[Worker], planned: Planned) -> None:
        if workers:
            self.start(placement.ways(site, list(workers)))
            for one in workers:
                self.start(placement.probe(one))
        self.start(placement.scorer(site, planned.policy, prometheus=planned.prometheus))
        self._wait_port("scorer", "127.0.0.1", site.ports["scorer"])
        self.start(placement.scheduler(site, planned.profile))

    def _workers(self, site: Site, workers: Sequence[Worker]) -> None:
        archives = self._images(site.binaries)
        holders = {one.name: self._enclose(site, one) for one in workers}
        for one in workers:
            self.start(worker.containerd(site, one, holders[one.name]))
        for one in workers:
            answers = partial(_answers, worker.socket(self.layout, one))
            self._wait_for(f"containerd-{one.name}", START_SECONDS, answers)
            for archive in archives:
                worker.load_image(self.layout, one, archive)
            self.start(worker.kubelet(site, one, holders[one.name]))
            self.start(worker.meter(site, one))

    def _enclose(self, site: Site, one: Worker) -> int:
        """Make a worker's namespaces; returns the pid that holds them."""
        component = worker.enclosure(site, one)
        self.start(component)
        pid = self.component(component.name).pid
        self._wait_for(component.name, START_SECONDS, partial(worker.is_enclosed, site, pid))
        cgroup.leave(pid)
        return pid

    def _images(self, binaries: Binaries) -> list[Path]:
        folder = self.layout.folder("images")
        archives = []
        for name, verb in ((PAUSE_IMAGE, "pause"), (WORKLOAD_IMAGE, "")):
            archive = folder / f"{verb or 'workload'}.tar"
            entrypoint = ["/workload", verb] if verb else ["/workload"]
            write_image(Path(binaries["workload"]), archive, name=name, entrypoint=entrypoint)
            archives.append(archive)
        return archives

    def _monitoring(self, site: Site, workers: Sequence[Worker], planned: Planned) -> None:
        if planned.fake_nodes:
            self.start(fake.kwok(site, lease_seconds=planned.fake_lease_seconds))
        self.start(monitoring.metrics_server(site, fake_nodes=planned.fake_nodes))
        text = (controlplane.MANIFESTS / "metrics-api.yaml").read_text()
        self.apply(text.replace("METRICS_SERVER_PORT", str(site.ports["metrics-server"])))
        self.start(monitoring.kube_state_metrics(site))
        if planned.prometheus:
            self.start(monitoring.targets(site))
            few = planned.fake_nodes if planned.fake_nodes <= CROWD else 0
            names = [fake.name_of(number + 1) for number in range(few)]
            self.start(monitoring.prometheus(site, list(workers), names))

    def _fake_nodes(self, count: int) -> None:
        # One process for all of them: a kubectl each would take minutes.
        self.kubectl("create", "-f", "-", text="\n".join(fake.nodes(count)))

    # Looking

    @property
    def planned(self) -> Planned | None:
        found = self.ledger.of(Planned)
        return found[-1] if found else None

    def workers(self) -> list[Worker]:
        return workers_of(self._require_planned())

    def _require_planned(self) -> Planned:
        if self.planned is None:
            raise LabUnavailable("There is no lab here. Start one with: pilothouse lab up.")
        return self.planned

    def processes(self) -> list[Started]:
        """The latest start of every component, in order of their first start."""
        latest: dict[str, Started] = {}
        for entry in self.ledger.of(Started):
            latest[entry.name] = entry
        return list(latest.values())

    def status(self) -> dict[str, Any]:
        """Everything there is to know, as plain values."""
        planned = self.planned
        left = reaper.find(self.layout)
        if planned is None:
            return {"state": "remains" if left.sentence else "down", "remains": left.sentence}
        components = [
            {"name": p.name, "pid": p.pid, "state": process.state(p.pid, p.ticks)}
            for p in self.processes()
        ]
        ready = self.ledger.of(Ready)
        whole = ready and all(c["state"] == "running" for c in components)
        nodes, problem = self._nodes()
        return {
            "state": "up" if whole and not problem else "broken",
            "kubeconfig": str(self.layout.kubeconfig),
            "api": f"https://{API_ADDRESS}:{API_PORT}",
            "prometheus": self.prometheus_url,
            "scheduler": planned.scheduler,
            "policy": planned.policy,
            "profile": planned.profile,
            "scorer": self.scorer_url,
            "audit_log": str(self.layout.audit_log),
            "logs": str(self.layout.logs),
            "came_up_in_seconds": ready[-1].seconds if ready else None,
            "components": components,
            "nodes": nodes,
            "problem": problem,
            "binaries": dict(planned.origin),
        }

    @property
    def prometheus_url(self) -> str | None:
        planned = self.planned
        if planned is None or not planned.prometheus:
            return None
        return f"http://127.0.0.1:{planned.ports['prometheus']}"

    def _nodes(self) -> tuple[list[dict[str, Any]], str]:
        try:
            # Raw: kubectl would decode and print a thousand nodes for seconds of processor time.
            found = json.loads(self.kubectl("get", "--raw", "/api/v1/nodes?resourceVersion=0"))
        except LabFailed as error:
            return [], str(error)
        rows = []
        for node in found["items"]:
            kinds = node["metadata"]["labels"]
            conditions = node["status"].get("conditions", [])
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
            rows.append(
                {
                    "name": node["metadata"]["name"],
                    "kind": kinds.get("pilothouse.dev/lab", "unknown"),
                    "ready": ready,
                    "cpu": node["status"].get("allocatable", {}).get("cpu"),
                    "memory": node["status"].get("allocatable", {}).get("memory"),
                }
            )
        return rows, ""

    def kubectl(self, *arguments: str, text: str | None = None, identity: str = "admin") -> str:
        """Run kubectl, as the lab's administrator unless told otherwise; returns its output."""
        command = [str(self.layout.binaries / "kubectl"), "--kubeconfig"]
        command += [str(self.layout.pki / f"{identity}.kubeconfig"), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, env=_bare())
        if done.returncode != 0:
            raise LabFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def apply(self, text: str, *, identity: str = "admin") -> None:
        self.kubectl("apply", "--server-side", "-f", "-", text=text, identity=identity)

    # Single components

    def start(self, component: Component) -> None:
        pid, ticks = process.start(
            list(component.command),
            log=self.layout.log(component.name),
            group=cgroup.members_file(cgroup.SYSTEM),
            environment=_bare() | dict(component.environment),
        )
        self.ledger.append(
            Started(
                name=component.name,
                command=list(component.command),
                pid=pid,
                ticks=ticks,
                environment=dict(component.environment),
            )
        )

    def component(self, name: str) -> Started:
        for entry in self.processes():
            if entry.name == name:
                return entry
        names = ", ".join(entry.name for entry in self.processes()) or "none"
        raise LabUnavailable(f'The lab has no component "{name}". It has: {names}.')

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Signal a component; False when it is dead."""
        entry = self.component(name)
        return process.send(entry.pid, entry.ticks, number)

    def kill(self, name: str) -> None:
        """End a component the hard way and wait until it is gone."""
        entry = self.component(name)
        process.send(entry.pid, entry.ticks, signal.SIGKILL)
        process.wait_until_dead([(entry.pid, entry.ticks)], 10)

    def restart(self, name: str) -> None:
        """Start a component again exactly as it was started."""
        entry = self.component(name)
        self.kill(name)
        self.start(
            Component(name=name, command=tuple(entry.command), environment=entry.environment)
        )

    def reschedule(self, scheduler: Component, scorer: Component | None = None) -> None:
        """Another scheduler, and scorer, in the place of the one before; all else stays."""
        planned = self._require_planned()
        self.kill(scheduler.name)
        if scorer is not None:
            self.kill(scorer.name)
            self.start(scorer)
            self._wait_alone(scorer.name, lambda: _is_ok(f"{self.scorer_url}/readyz"))
        self.start(scheduler)
        port = planned.ports[scheduler.name]
        self._wait_alone(scheduler.name, lambda: _listens("127.0.0.1", port))

    def plan(self, **changes: str) -> None:
        """Write down what the lab is from now on."""
        self.ledger.append(msgspec.structs.replace(self._require_planned(), **changes))

    def set_latency(self, changes: dict[str, float]) -> dict[str, float]:
        """Put so many milliseconds between workers and their user."""
        planned = self._require_planned()
        if planned.scheduler == "stock":
            raise LabUnavailable(
                "This lab has no latency probes. Bring it up with: --scheduler pilothouse."
            )
        return placement.set_latency(self.layout, workers_of(planned), changes)

    @property
    def scorer_url(self) -> str | None:
        planned = self.planned
        if planned is None or planned.scheduler == "stock":
            return None
        return f"http://127.0.0.1:{planned.ports['scorer']}"

    def squeeze(self, name: str, cpu_millicores: int) -> None:
        """Change what a worker really has, without telling the kubelet: degradation."""
        for one in self.workers():
            if one.name == name:
                cgroup.set_cpu(one.cgroup, cpu_millicores)
                return
        raise LabUnavailable(f'The lab has no worker "{name}".')

    # Waiting

    def _wait_port(self, name: str, address: str, port: int) -> None:
        self._wait_for(name, START_SECONDS, lambda: _listens(address, port))

    def _api_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw", "/readyz", "--request-timeout=2s") == "ok"
        except LabFailed:
            return False

    def wait_for_api(self, seconds: float = START_SECONDS) -> None:
        self._wait_for("kube-apiserver", seconds, self._api_ready)

    def _wait_ready(self, planned: Planned) -> None:
        wanted = planned.workers + planned.fake_nodes

        def all_ready() -> bool:
            nodes, _ = self._nodes()
            return len(nodes) == wanted and all(node["ready"] for node in nodes)

        seconds = READY_SECONDS + planned.fake_nodes / 10
        name = "kubelet-worker-1" if planned.workers else "kwok"
        pause = 0.2 + planned.fake_nodes / 1000  # a long list is work for the machine, too
        self._wait_for(name, seconds, all_ready, pause=pause)

    def _wait_for(
        self, name: str, seconds: float, done: Callable[[], bool], *, pause: float = 0.2
    ) -> None:
        """Until something holds; a component that died meanwhile ends the wait at once."""
        deadline = time.monotonic() + seconds
        while not done():
            dead = [p for p in self.processes() if not process.is_alive(p.pid, p.ticks)]
            if dead:
                raise LabFailed(f"{dead[0].name} ended: {self._last_words(dead[0].name)}")
            if time.monotonic() > deadline:
                raise LabFailed(
                    f"{name} was not ready after {seconds:.0f} s: {self._last_words(name)}"
                )
            time.sleep(pause)

    def _wait_alone(self, name: str, done: Callable[[], bool]) -> None:
        """The same for one component, whatever became of the others: workers may be lost."""
        deadline = time.monotonic() + START_SECONDS
        while not done():
            entry = self.component(name)
            if not process.is_alive(entry.pid, entry.ticks):
                raise LabFailed(f"{name} ended: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise LabFailed(
                    f"{name} was not ready {START_SECONDS:.0f} s after its restart: "
                    f"{self._last_words(name)}"
                )
            time.sleep(0.2)

    def _last_words(self, name: str) -> str:
        try:
            lines = self.layout.log(name).read_text(errors="replace").splitlines()
        except OSError:
            return "it left no log."
        return " | ".join(lines[-3:])[-900:] + f" (all of it: {self.layout.log(name)})"

    # Going

    def down(self, *, keep_logs: bool = False) -> Leftovers:
        """Take everything away; what resisted is an error."""
        if os.geteuid() != 0:
            raise LabUnavailable("Taking a lab away needs root, as making it did.")
        with locked(self.layout.lock):
            left = reaper.reap(self.layout)
            if left.sentence:
                raise LabFailed(
                    f"Some of the lab is still there: {left.sentence}. Try again; if it stays, "
                    "these name what holds it: "
                    f"{left.processes[:5]} {left.mounts[:5]} {left.links} {left.cgroups[:3]}."
                )
            if not keep_logs:
                shutil.rmtree(self.layout.logs, ignore_errors=True)
            return left


def workers_of(planned: Planned) -> list[Worker]:
    return [
        Worker(
            number=number,
            cpu_millicores=planned.worker_cpu_millicores,
            memory_mib=planned.worker_memory_mib,
        )
        for number in range(1, planned.workers + 1)
    ]


def _wanted(wish: Wish, standing: Planned | None) -> tuple[str, str]:
    """Policy and profile: as asked for; what is not asked for stays, or goes with the policy."""
    before = standing.policy if standing is not None else ""
    policy = wish.policy or before or placement.DEFAULT_PROFILE
    profile = wish.profile
    if not profile and standing is not None and not wish.policy:
        profile = standing.profile if standing.profile in placement.profile_names() else ""
    return policy, profile or placement.profile_of(policy)


def _bare() -> dict[str, str]:
    """Components see nothing of the caller's environment: proxies and secrets stay outside."""
    return {"PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin", "HOME": "/root"}


def _free_ports() -> dict[str, int]:
    found: dict[str, int] = {}
    port = FIRST_PORT
    for name in PORTS:
        while not _is_free(port):
            port += 1
        found[name] = port
        port += 1
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((address, port)) == 0


def _is_ok(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:  # of which every refusal and every status but 200 is one
        return False


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
