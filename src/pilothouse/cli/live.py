# SPDX-License-Identifier: Apache-2.0
"""What ``pilothouse up --kubeconfig`` adds: a live cluster to look at, in shadow."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pilothouse.cli.stopping import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilothouse.cli.enforce import Acting
    from pilothouse.clients import Access, Store
    from pilothouse.clients.lease import Leadership
    from pilothouse.domain import Snapshot
    from pilothouse.observe import ShadowCluster
    from pilothouse.observe.usage import UsageSource
    from pilothouse.settings import ObserveSettings, Settings

STAND_BY_SECONDS = 0.5
LEASE_SECONDS = 2.0  # how long a start waits to learn who has the lease
LIVE = "live"  # what the journal of a live run says instead of a scenario


def live_settings(settings: Settings, cluster: str) -> Settings:
    """The same settings for a live cluster: in shadow, without forks, under the cluster's name."""
    from pilothouse.settings.file import with_overrides

    return with_overrides(
        settings,
        {
            "run.cluster": cluster,
            "run.scenario": LIVE,
            "modes.default": "shadow",
            "score.forks": False,
            "act.stepwise": True,
        },
        source="--kubeconfig",
    )


def cluster_name(context: str) -> str:
    """A context's name as one word, for ids."""
    return re.sub(r"[^a-z0-9]+", "-", context.lower()).strip("-")[:63].strip("-") or "cluster"


def open_cluster(
    kubeconfig: Path,
    *,
    namespaces: str,
    prometheus: str | None,
    observe: ObserveSettings | None = None,
    acting: Acting | None = None,
) -> tuple[str, ShadowCluster]:
    """Connect and wait for the first complete look; ``acting`` brings what writing needs."""
    _require_client()
    from pilothouse.clients import Store, from_kubeconfig
    from pilothouse.clients.events import EventWriter
    from pilothouse.clients.lease import Leadership
    from pilothouse.clients.prometheus import Prometheus
    from pilothouse.clients.resources import KINDS
    from pilothouse.errors import InvalidSetting
    from pilothouse.observe import FiguresPoll, Observer, ShadowCluster, UsagePoll
    from pilothouse.settings import ObserveSettings

    settings = observe or ObserveSettings()
    url = prometheus or settings.prometheus
    if settings.usage == "prometheus" and not url:
        raise InvalidSetting(
            "observe.usage is prometheus, but its address is not known. "
            "Set observe.prometheus, or give --prometheus URL."
        )
    access = from_kubeconfig(kubeconfig)
    told = Prometheus(url) if url else None  # a bad address is said before anything is started
    store = Store(access, kinds=acting.kinds if acting else KINDS)
    poll = UsagePoll(_usage_source(settings, url, access, store))
    figures = FiguresPoll(told, settings, store.nodes) if told else None
    events, leadership = EventWriter("pilothouse"), Leadership()
    for job in (poll.run, events.run, leadership.run):
        store.add(job)
    if figures is not None:
        store.add(figures.run)
    name = cluster_name(access.context)
    patterns = tuple(part.strip() for part in namespaces.split(",") if part.strip()) or ("*",)
    try:
        store.open()
        leadership.wait(LEASE_SECONDS)
    except BaseException:
        store.close()
        raise
    observer = Observer(
        store=store,
        usage=poll,
        cluster=name,
        namespaces=patterns,
        figures=figures,
        silence=lambda: leadership.silence_seconds,
    )
    if acting:
        return name, acting.cluster(access, store, observer, events, leadership)
    return name, ShadowCluster(store, observer, events, leadership)


def _usage_source(settings: ObserveSettings, url: str, access: Access, store: Store) -> UsageSource:
    """The source that was asked for; ``auto`` tries them in order of how much they know."""
    from pilothouse.clients.kubelet import Kubelets
    from pilothouse.clients.prometheus import Prometheus
    from pilothouse.observe import FirstThatAnswers, MetricsApi, PrometheusUsage

    if settings.usage == "metrics.k8s.io":
        return MetricsApi()
    kubelets = Kubelets(access, store.nodes, time.time)
    if settings.usage == "kubelets":
        return kubelets
    told = [PrometheusUsage(Prometheus(url), settings)] if url else []
    if settings.usage == "prometheus":
        return told[0]
    return FirstThatAnswers(*told, MetricsApi(), kubelets)


def history(
    cluster: ShadowCluster, settings: ObserveSettings, prometheus: str | None
) -> tuple[list[Snapshot], str]:
    """The recent past from Prometheus, and in words what there was."""
    import asyncio

    from pilothouse.clients.prometheus import Prometheus
    from pilothouse.errors import PilothouseError
    from pilothouse.observe import backfill

    url = prometheus or settings.prometheus
    if not url or not settings.backfill_seconds:
        return [], "none: there is no Prometheus to ask, so forecasts warm up first"
    now = cluster.observe()
    try:
        steps, nodes, pods = asyncio.run(backfill.fetch(Prometheus(url), settings, end=time.time()))
    except PilothouseError as error:
        return [], f"none, so forecasts warm up first: {error}"
    offset = now.taken_seconds - time.time()
    seen = backfill.past(now, [int(at + offset) for at in steps], nodes, pods)
    if not seen:
        return [], f"none: {url} has no samples of the last {settings.backfill_seconds} s"
    return seen, f"{now.taken_seconds - seen[0].taken_seconds} s from {url}"


def stand_by(leadership: Leadership, say: Callable[[str], None]) -> None:
    """Wait while somebody else holds the lease. While nobody can be asked we go on looking:
    in shadow that harms nobody."""
    said = ""
    while rival := leadership.rival:
        if rival != said:
            say(f"Standing by: {leadership.sentence}")
            said = rival
        check()
        time.sleep(STAND_BY_SECONDS)
    if said:
        say(f"Going on: {leadership.sentence}")


def _require_client() -> None:
    from importlib.util import find_spec

    from pilothouse.errors import UserError

    if find_spec("httpx2") is None:
        raise UserError(
            "A live cluster needs httpx2, which is not installed. "
            'Install it with: pip install "pilothouse[kubernetes]"'
        )
