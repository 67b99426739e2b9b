# SPDX-License-Identifier: Apache-2.0
"""The plain Python peer after an afternoon with a profiler: hot loops inlined by hand.

Method calls and properties of pods and nodes are written out in the loops over pods and nodes,
attributes are read once into local names. The numbers are the same. It shows how much of a ratio
hangs on the style of the peer.
"""

from __future__ import annotations

from benchmarks.peers.python_simulator import (
    BUSY_SHARE,
    GOLDEN,
    LARGEST_SHARE,
    LATENCY,
    MASK,
    RUNNING,
    Node,
    Observation,
    Pod,
    PythonSimulator,
    mix,
)
from pilothouse.sim.curves import SHARE

MOST = 2 * SHARE


class TunedPythonSimulator(PythonSimulator):
    """The same cluster, stepped with less ceremony."""

    def _ask(self, node: Node, running: list[Pod]) -> list[Pod]:
        """Demand and memory of a node's pods; returns those above their memory limit."""
        dying = []
        asked = held = 0
        offset = self.tick * GOLDEN
        for pod in running:
            work = pod.work
            demand = work.share * (896 + (mix(pod.key + offset & MASK) >> 24)) >> 10
            if work.leak:
                pod.leaked += work.leak * (768 + (pod.key & 511)) >> 10
            memory = work.memory_level + (pod.leaked >> 10)
            if memory > pod.memory_alarm:
                demand = min(demand * 3, LARGEST_SHARE)
                if memory > pod.memory_limit:
                    dying.append(pod)
            used = demand if demand < pod.cpu_limit else pod.cpu_limit
            pod.demand, pod.memory, pod.used = demand, memory, used
            asked += used
            held += memory
        node.cpu_used, node.memory_used = asked, held
        return dying

    def _grant(self, node: Node, running: list[Pod]) -> None:
        asked, capability = node.cpu_used, max(node.cpu * node.health // 1000, 1)
        if asked > capability:
            node.cpu_used = capability
            self._share_out(running, capability)
            return
        pressure = min(asked * SHARE // capability, BUSY_SHARE)
        for pod in running:
            work = pod.work
            if work.batch:
                pod.remaining -= pod.used
                if pod.remaining <= 0:
                    self.finished.append(pod)
                continue
            busy = pod.demand * pod.ratio >> 10
            if busy < pressure:
                busy = pressure
            factor = LATENCY[busy if busy < MOST else MOST]
            work.factors += factor
            work.squares += factor * factor

    def _best_node(self, pod: Pod, open_nodes: list[Node]) -> Node | None:
        best, best_node = -1, None
        work, key = pod.work, pod.key
        ask_cpu, ask_memory, zone = work.cpu_request, work.memory_request, work.zone
        for node in open_nodes:
            whole_cpu, whole_memory = node.cpu, node.memory
            cpu, memory = node.cpu_requested + ask_cpu, node.memory_requested + ask_memory
            if cpu > whole_cpu or memory > whole_memory or (zone >= 0 and zone != node.zone):
                continue
            least = (whole_cpu - cpu) * 100 // whole_cpu
            least += (whole_memory - memory) * 100 // whole_memory
            lean = abs(cpu * 1000 // whole_cpu - memory * 1000 // whole_memory)
            word = key + (node.index + 1) * GOLDEN & MASK
            tie = (word ^ word >> 15) * 0xC2B2AE35 & MASK
            value = least // 2 + 100 - lean // 20 << 32 | tie
            if value > best:
                best, best_node = value, node
        return best_node

    def _observation(self) -> Observation:
        pods = [
            [pod.uid, -1 if pod.node is None else pod.node.index, pod.phase, 0, 0, pod.restarts]
            if pod.phase != RUNNING
            else [pod.uid, pod.node.index, RUNNING, pod.used, pod.memory, pod.restarts]
            for pod in self.pods.values()
        ]
        return {
            "nodes": [node.observation() for node in self.nodes],
            "workloads": [work.observation() for work in self.workloads],
            "pods": pods,
        }
