# SPDX-License-Identifier: Apache-2.0
"""What a dead client leaves behind in the process of the cluster."""

from __future__ import annotations

import threading
import time

import pytest

from pilothouse.domain import Status, Verb, Write
from pilothouse.errors import BackendError
from pilothouse.scenarios import load
from pilothouse.sim.cluster import SimCluster
from pilothouse.sim.remote import RemoteCluster
from pilothouse.sim.serve import FORKS_MAX, Server


@pytest.fixture
def server(tmp_path):
    cluster = SimCluster(load("harbor"), seed=1, name="sim")
    server = Server(cluster, "127.0.0.1", 0, tmp_path / "commands.jsonl")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def a_write(cluster: RemoteCluster, intent: str) -> Write:
    nodes = cluster.observe().nodes
    ref = cluster.observe().node_ref(0)
    return Write(
        verb=Verb.FREQUENCY,
        target=ref,
        uid=int(nodes.uid[0]),
        value=650,
        original=1000,
        intent=intent,
    )


def test_write_that_arrives_after_its_intent_was_looked_for_is_turned_away(server):
    dead, successor = RemoteCluster(server.url), RemoteCluster(server.url)
    write = a_write(dead, "d1.0.0")
    assert successor.find("d1.0.0") is None
    with pytest.raises(BackendError, match=r"d1\.0\.0 came too late"):
        dead.execute(write, "efficiency")
    assert successor.log() == []
    assert dead.fork().execute(write, "efficiency").status is Status.DONE, "a fork is no cluster"
    dead.close()
    successor.close()


def test_intent_that_was_found_stays_what_it_is(server):
    cluster = RemoteCluster(server.url)
    done = cluster.execute(a_write(cluster, "d1.0.0"), "efficiency")
    assert cluster.find("d1.0.0") == done
    cluster.close()


def test_forks_of_a_client_that_died_make_room_for_its_successor(server):
    dead, successor = RemoteCluster(server.url), RemoteCluster(server.url)
    for _ in range(FORKS_MAX):
        dead.fork()
    with pytest.raises(BackendError, match="forks are open"):
        successor.fork()
    dead.close()  # as when it dies: no fork is given back
    until = time.monotonic() + 60
    while not forks(successor):
        assert time.monotonic() < until, "the server never noticed"
    successor.close()


def forks(cluster: RemoteCluster) -> bool:
    try:
        cluster.fork()
    except BackendError:
        return False
    return True
