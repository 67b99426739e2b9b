# SPDX-License-Identifier: Apache-2.0
"""A cluster in another process behaves like one here, and its log is durable."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilothouse.domain import Ref, Status, Verb, Write
from pilothouse.errors import BackendError, PortInUse
from pilothouse.scenarios import load
from pilothouse.sim import RemoteCluster, SimCluster
from pilothouse.sim.serve import Server
from tests.sim.writes import do


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    serving = Server(SimCluster(load("harbor"), seed=3), "127.0.0.1", 0, tmp_path / "log.jsonl")
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serving
    serving.shutdown()
    thread.join()
    serving.server_close()


@pytest.fixture
def remote(server: Server) -> Iterator[RemoteCluster]:
    cluster = RemoteCluster(server.url)
    yield cluster
    cluster.close()


def test_remote_cluster_shows_and_does_what_a_local_one_does(remote):
    local = SimCluster(load("harbor"), seed=3)
    for cluster in (local, remote):
        cluster.advance(300)
        do(cluster, Verb.SCALE, Ref("sim", "workload", "shop", "cart"), 9)
        cluster.advance(300)
    ours, theirs = local.observe(), remote.observe()
    assert ours.pods.names.tolist() == theirs.pods.names.tolist()
    assert ours.pods.cpu_used_millicores.tolist() == theirs.pods.cpu_used_millicores.tolist()
    assert ours.sources == theirs.sources
    assert local.toll() == remote.toll()
    assert local.stimuli() == remote.stimuli()
    assert local.log() == remote.log()


def test_every_command_is_on_disk_before_its_answer(remote, tmp_path):
    for value in (1, 0, 7):
        do(remote, Verb.TAINT, Ref("sim", "node", "", "worker-1"), value, intent=f"d.{value}.0")
        lines = (tmp_path / "log.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["intent"] == f"d.{value}.0"
    statuses = [json.loads(line)["status"] for line in lines]
    assert statuses == ["done", "done", "refused"]
    assert remote.find("d.7.0").status is Status.REFUSED


def test_fork_lives_on_the_server_until_closed(remote):
    remote.advance(60)
    fork = remote.fork()
    do(fork, Verb.TAINT, Ref("sim", "node", "", "worker-1"), 1)
    assert remote.log() == []
    fork.advance(300)
    assert (fork.clock_seconds, remote.clock_seconds) == (360, 60)
    fork.close()
    with pytest.raises(BackendError, match="Fork 1 is gone"):
        fork.toll()


def test_asking_twice_for_the_same_clock_advances_once(remote, server):
    remote.advance_to(300)
    restarted = RemoteCluster(server.url)
    restarted.advance_to(300)
    assert restarted.observe().taken_seconds == 300
    restarted.close()


def test_client_that_dies_in_the_middle_of_a_request_does_no_harm(remote, server):
    host, port = server.server_address[:2]
    with socket.create_connection((host, port)) as connection:
        connection.sendall(b"POST /execute HTTP/1.1\r\nContent-Length: 5000\r\n\r\nhalf")
    remote.advance(30)
    assert remote.log() == []


def test_nonsense_is_answered_with_an_error(remote):
    with pytest.raises(BackendError, match='Unknown call "explode"'):
        remote._call("explode")
    with pytest.raises(BackendError, match="cannot use this request"):
        remote._call("execute", [{"verb": "fly"}, "x"])


def test_nobody_listening_is_one_clear_line(server):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(BackendError, match="pilothouse sim serve"):
        RemoteCluster(f"http://127.0.0.1:{port}")


def test_taken_port_is_a_user_error(server, tmp_path):
    with pytest.raises(PortInUse, match="Give another port"):
        Server(
            SimCluster(load("harbor"), seed=0),
            "127.0.0.1",
            server.server_address[1],
            tmp_path / "other.jsonl",
        )


def test_refused_and_unknown_writes_are_in_the_log_too(remote):
    gone = Write(
        verb=Verb.EVICT, target=Ref("sim", "pod", "shop", "no"), uid=5, value=1, original=0
    )
    assert remote.execute(gone, "x").status is Status.FAILED
    assert len(remote.log()) == 1
