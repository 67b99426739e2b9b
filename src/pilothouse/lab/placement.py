# SPDX-License-Identifier: Apache-2.0
"""The learned scheduler in the lab: our kube-scheduler, its scorer, and the ways to the user.

The user is one process that answers for every worker, each at an address of its own, and holds its
answers back as long as told: distance, without a kernel module. Each worker's probe measures its
own way. What the components say to each other stays on this machine.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any

import yaml

from pilothouse.errors import LabUnavailable, UnknownName
from pilothouse.lab.component import Component, Site, flags
from pilothouse.lab.controlplane import MANIFESTS
from pilothouse.lab.delay import delays, set_delays
from pilothouse.lab.layout import Layout, Worker
from pilothouse.lab.part import REPOSITORY
from pilothouse.policy import read, shipped_names

SCHEDULERS = ("stock", "pilothouse")
PROBE_PORT = 10271
WAY_PORT = 10272
PLUGIN = "PilothousePlacement"
DEFAULT_PROFILE = "el-rl"  # for a policy that brings no profile of its own name


def profiles() -> Path:
    """The shipped profiles: with the manifests in a package, in ``deploy`` of the repository."""
    beside = MANIFESTS / "scheduler"
    return beside if beside.is_dir() else REPOSITORY / "deploy" / "scheduler"


def profile_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in profiles().glob("*.yaml")))


def check_profile(profile: str) -> None:
    if profile not in profile_names():
        raise UnknownName.among("scheduler profile", profile, profile_names())


def profile_of(policy: str) -> str:
    """The profile that a policy has unless another is asked for."""
    return policy if policy in profile_names() else DEFAULT_PROFILE


def resolved(policy: str) -> str:
    """A shipped policy's name, or the whole path of a policy that can be run.

    Components run in a folder of their own, where a relative path leads nowhere; and a policy
    that cannot be run should not cost the minutes until its scorer says so.
    """
    if policy in shipped_names():
        return policy
    if not ("/" in policy or Path(policy).suffix or Path(policy).exists()):
        raise UnknownName.among("policy", policy, shipped_names())
    read(Path(policy))
    return str(Path(policy).absolute())  # a link stays one: it may be swapped for another policy


def configuration(site: Site, profile: str) -> Path:
    """The shipped profile with this lab's addresses in it, as a file."""
    check_profile(profile)
    document: dict[str, Any] = yaml.safe_load((profiles() / f"{profile}.yaml").read_text())
    document["clientConnection"] = {
        "kubeconfig": site.kubeconfig("kube-scheduler"),
        "qps": 200,
        "burst": 400,
    }
    document["leaderElection"] = {"leaderElect": False}
    for entry in document["profiles"][0]["pluginConfig"]:
        if entry["name"] == PLUGIN:
            entry["args"] |= {
                "scorerAddress": f"http://127.0.0.1:{site.ports['scorer']}",
                "journalAddress": f"http://127.0.0.1:{site.ports['scorer']}",
                "journalTokenFile": str(token_file(site.layout)),
            }
    path = site.layout.folder("scheduler") / "configuration.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def scheduler(site: Site, profile: str) -> Component:
    """Our kube-scheduler under the name of the stock one: it takes its place."""
    return Component(
        name="kube-scheduler",
        command=(
            site.binaries["pilothouse-scheduler"],
            *flags(
                config=str(configuration(site, profile)),
                authentication_kubeconfig=site.kubeconfig("kube-scheduler"),
                authorization_kubeconfig=site.kubeconfig("kube-scheduler"),
                bind_address="127.0.0.1",
                secure_port=site.ports["kube-scheduler"],
                tls_cert_file=site.pki("loopback.crt"),
                tls_private_key_file=site.pki("loopback.key"),
            ),
        ),
    )


def scorer(site: Site, policy: str, *, prometheus: bool) -> Component:
    asked = {"prometheus": f"http://127.0.0.1:{site.ports['prometheus']}"} if prometheus else {}
    return Component(
        name="scorer",
        command=(
            *_pilothouse("scorer"),
            *flags(
                policy=policy,
                kubeconfig=site.kubeconfig("scorer"),
                probe_port=PROBE_PORT,
                port=site.ports["scorer"],
                token_file=str(token_file(site.layout)),
                journal=str(journal(site.layout)),
                **asked,
            ),
        ),
    )


def ways(site: Site, workers: list[Worker]) -> Component:
    """The user, and how far it is from every worker."""
    set_delays(delays_file(site.layout), {})
    command = [sys.executable, "-m", "pilothouse.lab.ways", str(delays_file(site.layout))]
    command += [f"{one.name}={one.address}:{WAY_PORT}" for one in workers]
    return Component(name="ways", command=tuple(command))


def probe(one: Worker) -> Component:
    command = (*_pilothouse("probe"), f"{one.address}:{WAY_PORT}")
    return Component(
        name=f"probe-{one.name}", command=(*command, *flags(host=one.address, port=PROBE_PORT))
    )


def _pilothouse(verb: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pilothouse.cli", verb)


def token_file(layout: Layout) -> Path:
    """Made once per lab; only root reads it."""
    path = layout.folder("scheduler") / "token"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32) + "\n")
    return path


def journal(layout: Layout) -> Path:
    return layout.folder("scheduler") / "placements.db"


def delays_file(layout: Layout) -> Path:
    return layout.folder("scheduler") / "delays.json"


def set_latency(
    layout: Layout, workers: list[Worker], changes: dict[str, float]
) -> dict[str, float]:
    """Put so many milliseconds between workers and their user; all of them come back."""
    known = [one.name for one in workers]
    for node, milliseconds in changes.items():
        if node not in known:
            raise UnknownName.among("worker", node, known)
        if not 0 <= milliseconds <= 10_000:
            raise LabUnavailable(
                f"A latency must be between 0 and 10000 ms, but {node} got {milliseconds:g}."
            )
    set_delays(delays_file(layout), changes)
    found = delays(delays_file(layout))
    return {name: found.get(name, 0.0) for name in known}
