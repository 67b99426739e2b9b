# SPDX-License-Identifier: Apache-2.0
"""How this process runs: one dataclass per concern, one versioned file.

Defaults live here and nowhere else; a test pins them. Bounds are part of the type, so that the
file reader can say what is accepted. Durations are cluster seconds unless the name says wall.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pilothouse.domain import Mode


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a setting, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OneWord:
    """A name that goes into ids, where slashes and spaces would be ambiguous."""

    description = "one word of lower-case letters, digits and dashes"

    def admits(self, text: str) -> bool:
        plain = text.replace("-", "")
        readable = plain.isascii() and plain.isalnum() and text == text.lower()
        return readable and len(text) <= 63 and text == text.strip("-")


Share = Annotated[float, Between(0, 1)]
Seconds = Annotated[int, Between(1, 86_400 * 366)]
Count = Annotated[int, Between(0, 1_000_000)]
Positive = Annotated[int, Between(1, 1_000_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What is run and how it is paced."""

    cluster: Annotated[str, OneWord()] = "sim"
    """Name of the cluster in every object id. One word, so that ids stay readable."""
    scenario: str = "harbor"
    """The default scenario: an ordinary cluster with a bit of everything going wrong."""
    seed: Annotated[int, Between(0, 2**31 - 1)] = 0
    """Same seed, same run. 0 so that a first run can be repeated without remembering anything."""
    cycle_seconds: Seconds = 15
    """Simulated time between two cycles; the usual scrape interval of Prometheus."""
    interval_wall_seconds: Annotated[float, Between(0, 3600)] = 1.0
    """Wall time between two cycles; 0 runs as fast as it can. 1 is what an eye can follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """Which forecaster, and the knobs of the transparent one."""

    forecaster: str = "ewma-trend"
    """``ewma-trend`` is transparent and knows nothing; ``learned`` ships with the package, trained
    on the simulator; any other name is a forecaster you trained, or the path of its file."""
    demand: str = "ewma-trend"
    """Who forecasts demand (p50 and p95 of CPU per node and workload): ``ewma-trend``, or the name
    or file of a demand forecaster you trained. None ships: demand is a cluster's own habit."""

    level_half_life_seconds: Seconds = 60
    """How fast the level follows usage; one minute smooths scrape noise, keeps ramps."""
    trend_half_life_seconds: Seconds = 180
    """How fast the slope follows; slower than the level, or noise becomes trend."""
    warmup_seconds: Seconds = 60
    """History needed before it stops abstaining: four scrapes."""
    stale_seconds: Seconds = 45
    """Usage older than three scrapes makes it abstain for that node."""
    errors_per_minute_alarm: Positive = 12
    """Corrected errors per minute at which a node is more likely than not to die within an hour."""
    heartbeat_lag_alarm_ms: Positive = 8_000
    """Kubelet heartbeats come every 10 s; a lag of 8 s means nearly one was missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetySettings:
    """Agent A: nothing dies. Thresholds on the 15 minute failure risk."""

    replicate_risk: Share = 0.83
    """From this risk on a failure is nearly certain: add replicas elsewhere first."""
    migrate_risk: Share = 0.70
    """From this risk on the node's pods are moved off it while it still answers."""
    throttle_risk: Share = 0.50
    """From this risk on the largest users of the node are slowed; easily taken back."""
    hold_seconds: Seconds = 1_800
    """How long a node that was moved off is kept empty. Only a few nodes may be empty at a time, so
    a calibrated forecaster, which can be asked again, ships a shorter one."""
    workload_horizon_seconds: Literal[300, 900, 1800, 3600] = 300
    """How far ahead a workload's own failures are looked at. Replicas take seconds, so five
    minutes are enough; a forecaster that learned from a trace is only sharp an hour ahead and
    ships that."""
    demand_share: Annotated[float, Between(0.1, 2)] = 1.0
    """Share of a workload's or the cluster's capacity that p95 demand may reach before a replica
    or a sleeping node is asked for."""
    wake_share: Annotated[float, Between(0.1, 2)] = 0.80
    """Share of awake capacity that p95 demand or requests may reach before a sleeping node is
    woken: booting takes a minute or more, so the last fifth is kept for it."""
    step_back_queue: Count = 80
    """Throttling steps back at this queue, or under violations, while ..."""
    step_back_pressure: Share = 0.72
    """... the node's own pressure is below this: slowing work would only feed the queue."""
    throttle_factor: Share = 0.90
    """New CPU limit over the old: one step of ten percent."""
    pods_per_action: Positive = 4
    """Pods one throttle touches, largest users first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencySettings:
    """Agent B: nothing idles. Thresholds on a node's demand over its capacity (upper, 15 min)."""

    sleep_demand: Share = 0.12
    """Below this a node is drained and put to sleep."""
    dvfs_demand: Share = 0.30
    """Below this its clock is lowered: cheaper than a sleep when work may come back."""
    balloon_demand: Share = 0.45
    """Below this memory that pods requested and never touched is taken back."""
    dvfs_frequency: Share = 0.65
    """The lowered clock over the default one; twice the demand it is used at still fits."""
    balloon_factor: Share = 0.75
    """New memory request over the old, within the guard's floor above the working set."""
    sleep_moves: Count = 0
    """Pods that may be moved to empty a node for its sleep. None: every move is a restart that
    somebody notices, and emptying nodes is the placement policy's work."""
    spare_share: Share = 0.25
    """Capacity that must stay free on the remaining nodes after a sleep; a lost node must fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """Agent C: the queue stays healthy."""

    cap_queue: Count = 120
    """Waiting pods from which running batch work is capped to let the queue drain."""
    deprioritize_queue: Count = 80
    """Waiting pods from which new batch pods are released last."""
    queue_queue: Count = 8
    """Waiting pods from which new batch pods are held; fewer clear by themselves."""
    hold_share: Share = 0.80
    """CPU of awake nodes, used or requested, from which a burst of new batch pods is held before
    anybody is hurt; new pods ask for CPU a minute before it shows as use."""
    overloaded_share: Share = 0.5
    """Share of overloaded nodes from which batch work is capped whatever the queue."""
    cap_factor: Share = 0.85
    """New CPU limit over the old of a capped pod."""
    pods_per_action: Positive = 8
    """Pods one cap touches, largest users first."""
    allow_reject: bool = False
    """Refusing work is a person's decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefereeSettings:
    """How disagreement is settled."""

    preemption: Literal["cluster", "overlap"] = "cluster"
    """cluster: any safety or protective admission action blocks all efficiency actions of the
    cycle; overlap: only those that touch the same objects."""
    actions_per_cycle: Positive = 3
    """More at once could not be told apart when they are scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """What may never happen, whoever asks. Windows slide; shares round up to at least one."""

    window_seconds: Seconds = 600
    """Length of the sliding window that budgets are counted in: ten minutes."""
    per_agent: Count = 12
    """Actions of one agent in a window."""
    per_workload: Count = 2
    """Actions that touch one workload in a window."""
    per_namespace: Count = 8
    """Actions that touch one namespace in a window."""
    per_node: Count = 2
    """Actions that touch one node in a window."""
    node_share: Share = 0.10
    """Nodes that may be tainted, drained or asleep because of us at any time."""
    drains_at_once: Count = 1
    """Nodes with pods on them that may be draining at the same time."""
    disturbed_share: Share = 0.05
    """Pods that may be moved or restarted in a window, of all pods."""
    replica_factor: Annotated[float, Between(1, 10)] = 2.0
    """Replicas may never exceed this multiple of what the owner declared."""
    dwell_seconds: Seconds = 120
    """An object rests this long after an action before the same field changes again."""
    reversals: Count = 1
    """Changes of direction of one field in a window; more quarantines it for an hour."""
    quarantine_seconds: Seconds = 3_600
    """How long a field that kept changing direction is left alone."""
    proposals_per_agent: Count = 64
    """More from one agent in one cycle are refused unread."""
    unready_share: Share = 0.20
    """With more nodes unready than this (and more than three) nothing disruptive happens."""
    stale_seconds: Seconds = 45
    """Data older than three scrapes is not acted on."""
    completeness: Share = 0.95
    """Share of the expected samples below which data is too thin to act on."""
    minimum_pod_age_seconds: Seconds = 120
    """A pod younger than this is not moved again."""
    cpu_floor_share: Share = 0.5
    """A CPU limit is never lowered below this share of what its owner set."""
    memory_floor_factor: Annotated[float, Between(1, 10)] = 1.2
    """A memory request is never lowered below this multiple of the peak working set."""
    frequency_floor: Share = 0.5
    """A node's clock is never lowered below this share of its default."""
    gated_namespaces: Count = 2
    """Namespaces whose new pods may be held back at the same time."""
    ttl_seconds: dict[str, Seconds] = field(
        default_factory=lambda: {
            "replicate": 1_800,
            "migrate": 1_800,
            "throttle": 900,
            "resource_cap": 900,
            "memory_balloon": 1_800,
            "power_state": 1_800,
            "dvfs": 600,
            "admission": 120,
        }
    )
    """After this the inverse runs by itself."""
    protected_priority: Annotated[int, Between(0, 2_000_000_000)] = 1_000_000
    """Workloads at or above this priority are never disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSettings:
    """How far each agent may go, by agent and by namespace (``agent`` or ``agent/namespace``)."""

    default: Mode = Mode.ENFORCE
    """On the simulator; on a live cluster the default is shadow."""
    agents: dict[str, Mode] = field(default_factory=dict)
    """Exceptions to the default; an entry for a namespace wins over one for the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActSettings:
    """How actions reach the cluster."""

    stepwise: bool = False
    """On a live cluster (where it is always on) a drain is carried on by single evictions, and a
    new replica is kept off a node by a taint. The simulator does both by itself."""
    power_hook: str = ""
    """Command, or http(s) address, that turns machines off and on; without one a node that sleeps
    is empty and closed, and its machine goes on running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """The record."""

    keyframe_cycles: Positive = 50
    """A full snapshot every so many cycles; in between differences."""
    segment_mib: Positive = 256
    """A file larger than this is closed and a new one carries the chain on."""
    segment_hours: Positive = 24
    """A file older than this (wall time) is closed too, so that keeping by days can work."""
    keep_segments: Count = 16
    """Closed files kept; older ones are deleted."""
    keep_days: Positive = 30
    """Closed files older than this are deleted, however few there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """What an action was worth."""

    settle_seconds: Seconds = 300
    """Moving pods off a failing node pays off minutes later, when it dies: five minutes."""
    forks: bool = True
    """Compare with the same simulated cluster without the action."""
    weights: dict[str, Annotated[float, Between(0, 100)]] = field(
        default_factory=lambda: {"safety": 1.0, "efficiency": 0.6, "admission": 0.8}
    )
    """What a unit of each agent's reward counts in the total: first that nothing dies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveSettings:
    """Where a live cluster's usage comes from. Queries are templates: ``$node`` and ``$address``
    stand for a node's name and internal address, escaped so that neither can end its string."""

    usage: Literal["auto", "prometheus", "metrics.k8s.io", "kubelets"] = "auto"
    """``auto``: Prometheus where its address is known, else metrics.k8s.io, else the kubelets; the
    next is asked when one does not answer."""
    prometheus: str = ""
    """Address of Prometheus, such as http://127.0.0.1:9090; empty: there is none."""
    backfill_seconds: Annotated[int, Between(0, 86_400)] = 900
    """History read from Prometheus at the start, so that forecasts need not warm up; the longest
    trend is forgotten after a quarter of an hour."""
    pod_cpu_query: str = (
        "sum by (namespace, pod) (max by (namespace, pod, container) "
        '(irate(container_cpu_usage_seconds_total{container!="",container!="POD"}[1m])))'
    )
    """Cores by ``namespace`` and ``pod``. The inner maximum is for kubelets that are scraped at two
    paths: the same container counts once. irate, because the forecaster smooths by itself."""
    pod_memory_query: str = (
        "sum by (namespace, pod) (max by (namespace, pod, container) "
        '(container_memory_working_set_bytes{container!="",container!="POD"}))'
    )
    """Bytes of working set by ``namespace`` and ``pod``."""
    node_cpu_query: str = "sum by (node) (irate(node_cpu_usage_seconds_total[1m]))"
    """Cores by ``node``."""
    node_memory_query: str = "max by (node) (node_memory_working_set_bytes)"
    """Bytes of working set by ``node``."""
    latency_query: str = (
        "histogram_quantile(0.95, sum by (namespace, deployment, le) "
        "(rate(workload_request_duration_seconds_bucket[1m])))"
    )
    """p95 seconds by ``namespace`` and ``deployment`` (or ``workload``). The lab's workload exports
    this one; name your own histogram here. Empty: latency is not read."""
    stolen_query: str = 'avg by (node) (irate(node_cpu_seconds_total{mode="steal"}[1m]))'
    """Share of processor time withheld from a node, by ``node``: a machine that has less than it
    says. Empty: not read."""
    errors_query: str = "sum by (node) (60 * rate(node_edac_correctable_errors_total[5m]))"
    """Corrected hardware errors per minute, by ``node``: what comes before many a failure. Empty:
    not read."""
    node_queries: dict[str, str] = field(
        default_factory=lambda: {
            "cpu_busy_percent": "100 - (avg(irate(node_cpu_seconds_total"
            '{mode="idle", instance="$address:9100"}[1m])) * 100)',
            "memory_available_gigabytes": "node_memory_MemAvailable_bytes"
            '{instance="$address:9100"} / 1000000000',
            "disk_used_percent": '100 - (node_filesystem_free_bytes{mountpoint="/run", '
            'instance="$address:9100"} / node_filesystem_size_bytes{mountpoint="/run", '
            'instance="$address:9100"} * 100)',
            "received_bytes_per_second": "rate(node_network_receive_bytes_total"
            '{instance="$address:9100", device="eth0"}[5m])',
            "established_connections": 'node_netstat_Tcp_CurrEstab{instance="$address:9100"}',
            "pods": 'count(kube_pod_info{node="$node"}) or vector(0)',
        }
    )
    """Figures per node that are shown and recorded as they are: the six of the thesis. Replacing
    one keeps its name; an empty query switches it off."""
    node_queries_limit: Count = 50
    """Clusters with more nodes are not asked node by node: that would be hundreds of queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The page and its API."""

    host: str = "127.0.0.1"
    """Loopback only: there is no authentication on reading."""
    port: Annotated[int, Between(0, 65_535)] = 8088
    """0 picks a free one."""
    metrics_port: Annotated[int, Between(0, 65_535)] = 0
    """Also answer /metrics, /healthz and /readyz on every address of this machine: figures only,
    never the page. 0: no, because outside a cluster nobody asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole file."""

    run: RunSettings = field(default_factory=RunSettings)
    modes: ModeSettings = field(default_factory=ModeSettings)
    forecast: ForecastSettings = field(default_factory=ForecastSettings)
    safety: SafetySettings = field(default_factory=SafetySettings)
    efficiency: EfficiencySettings = field(default_factory=EfficiencySettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    referee: RefereeSettings = field(default_factory=RefereeSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    act: ActSettings = field(default_factory=ActSettings)
    score: ScoreSettings = field(default_factory=ScoreSettings)
    observe: ObserveSettings = field(default_factory=ObserveSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
