# SPDX-License-Identifier: Apache-2.0
"""What ``pilothouse up --kubeconfig`` adds: a live cluster to look at, in shadow."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilothouse.cli.enforce import Acting
    from pilothouse.observe import ShadowCluster
    from pilothouse.settings import Settings

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
    kubeconfig: Path, *, namespaces: str, prometheus: str | None, acting: Acting | None = None
) -> tuple[str, ShadowCluster]:
    """Connect and wait for the first complete look; ``acting`` brings what writing needs."""
    _require_client()
    from pilothouse.clients import Store, from_kubeconfig
    from pilothouse.clients.events import EventWriter
    from pilothouse.clients.kubelet import Kubelets
    from pilothouse.clients.prometheus import Prometheus
    from pilothouse.clients.resources import KINDS
    from pilothouse.observe import (
        FirstThatAnswers,
        MetricsApi,
        Observer,
        PrometheusUsage,
        ShadowCluster,
        UsagePoll,
    )
    from pilothouse.observe.usage import UsageSource

    access = from_kubeconfig(kubeconfig)
    store = Store(access, kinds=acting.kinds if acting else KINDS)
    kubelets = Kubelets(access, store.nodes, time.time)
    source: UsageSource = FirstThatAnswers(MetricsApi(), kubelets)
    if prometheus:
        source = PrometheusUsage(Prometheus(prometheus))
    poll = UsagePoll(source)
    store.add(poll.run)
    events = EventWriter("pilothouse")
    store.add(events.run)
    if acting:
        acting.join(store)
    name = cluster_name(access.context)
    patterns = tuple(part.strip() for part in namespaces.split(",") if part.strip()) or ("*",)
    try:
        store.open()
    except BaseException:
        store.close()
        raise
    observer = Observer(store=store, usage=poll, cluster=name, namespaces=patterns)
    if acting:
        return name, acting.cluster(access, store, observer, events)
    return name, ShadowCluster(store, observer, events)


def _require_client() -> None:
    from importlib.util import find_spec

    from pilothouse.errors import UserError

    if find_spec("httpx2") is None:
        raise UserError(
            "A live cluster needs httpx2, which is not installed. "
            'Install it with: pip install "pilothouse[kubernetes]"'
        )
