# SPDX-License-Identifier: Apache-2.0
"""The arms of the benchmark: the stock scheduler, ours, and ours with a broken scorer."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from pilothouse.lab import Lab, placement
from pilothouse.lab.build import Binaries
from pilothouse.lab.component import Component, Site, flags

QUERIES_PER_SECOND = 5000  # of both arms, so that the client's own limit measures nothing
ARMS = ("stock", "plugin", "killed", "hung", "garbage", "extender")


def site_of(lab: Lab) -> Site:
    planned = lab.planned
    assert planned is not None
    binaries = Binaries(folder=lab.layout.binaries, origin=planned.origin)
    return Site(layout=lab.layout, binaries=binaries, ports=planned.ports)


def configuration(site: Site, arm: str, *, percentage: int) -> Path:
    """The profile of one arm; sampling and client limits are the same in all."""
    if arm in ("stock", "extender"):
        document: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        }
    else:
        document = yaml.safe_load(placement.configuration(site, "el-rl").read_text())
        for entry in document["profiles"][0]["pluginConfig"]:
            if entry["name"] == placement.PLUGIN and arm == "garbage":
                entry["args"]["scorerAddress"] = "http://127.0.0.1:" + str(_garbage_port(site))
    if arm == "extender":
        url = f"http://127.0.0.1:{site.ports['scorer']}/extender"
        document["extenders"] = [
            {
                "urlPrefix": url,
                "prioritizeVerb": "prioritize",
                "weight": 10,
                "nodeCacheCapable": True,
                "ignorable": True,
                "enableHTTPS": False,
            }
        ]
    document["percentageOfNodesToScore"] = percentage
    document["leaderElection"] = {"leaderElect": False}
    document["clientConnection"] = {
        "kubeconfig": site.kubeconfig("kube-scheduler"),
        "qps": QUERIES_PER_SECOND,
        "burst": QUERIES_PER_SECOND,
    }
    path = site.layout.folder("scheduler") / f"{arm}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def scheduler(site: Site, arm: str, *, percentage: int) -> Component:
    binary = "kube-scheduler" if arm in ("stock", "extender") else "pilothouse-scheduler"
    return Component(
        name="kube-scheduler",
        command=(
            site.binaries[binary],
            *flags(
                config=str(configuration(site, arm, percentage=percentage)),
                authentication_kubeconfig=site.kubeconfig("kube-scheduler"),
                authorization_kubeconfig=site.kubeconfig("kube-scheduler"),
                bind_address="127.0.0.1",
                secure_port=site.ports["kube-scheduler"],
                tls_cert_file=site.pki("loopback.crt"),
                tls_private_key_file=site.pki("loopback.key"),
            ),
        ),
    )


@contextmanager
def scorer_as(lab: Lab, arm: str) -> Iterator[None]:
    """The scorer in the state that the arm is about; whole again afterwards."""
    if arm == "killed":
        lab.kill("scorer")
    elif arm == "hung":
        lab.signal("scorer", signal.SIGSTOP)
    try:
        if arm == "garbage":
            with _garbage(_garbage_port(site_of(lab))):
                yield
        else:
            yield
    finally:
        if arm == "killed":
            lab.restart("scorer")
        elif arm == "hung":
            lab.signal("scorer", signal.SIGCONT)


def _garbage_port(site: Site) -> int:
    return site.ports["scorer"] + 1000


@contextmanager
def _garbage(port: int) -> Iterator[None]:
    """Answers every question with something else each time."""
    answers = [b"<html>", b"", b'{"ttlSeconds": NaN}', b'{"apiVersion": "v9"}', b" " * (9 << 20)]
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        turn = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(4096)
                    body = answers[turn % len(answers)]
                    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                    connection.sendall(head.encode() + body)
                except OSError:
                    pass  # the scheduler hung up, which is the right thing to do
            turn += 1

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
