# SPDX-License-Identifier: Apache-2.0
"""The learned scheduler on real workers: it follows latency, explains itself and fails open."""

from __future__ import annotations

import json
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pilothouse.explain import placements
from pilothouse.home import home
from pilothouse.lab import Lab, Wish
from pilothouse.lab.placement import journal, token_file
from pilothouse.testing.placement import near_and_few

NAMESPACE = "placement"
# Five times the usual 20 and 30 ms: a machine full of other work adds tens of milliseconds.
LIMITS = {"latencySoftConstraint": "100", "latencyHardConstraint": "150"}
NEAR, FAR = 5.0, 400.0
Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def lab(
    machine_before: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("policy")
    near_and_few(folder)
    lab = Lab(home() / "lab")
    policy = str(folder / "near-and-few")
    lab.up(Wish(workers=3, scheduler="pilothouse", policy=policy, profile="el-rl"))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    lab.apply(json.dumps(space))
    yield lab
    lab.down(keep_logs=True)


def a_pod(name: str, *, annotations: dict[str, str] = LIMITS) -> dict[str, Any]:
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "workload",
                    "image": "docker.io/pilothouse/workload:lab",
                    "imagePullPolicy": "Never",
                    "args": ["serve"],
                    "resources": resources,
                }
            ],
        },
    }


def place(lab: Lab, eventually: Eventually, name: str, **arguments: Any) -> str:
    """Create a pod and wait until it has a node."""
    lab.kubectl("create", "-f", "-", text=json.dumps(a_pod(name, **arguments)))
    return str(eventually(lambda: node_of(lab, name), every=0.1))


def node_of(lab: Lab, name: str) -> str:
    pod = json.loads(lab.kubectl("get", "pod", name, "-n", NAMESPACE, "-o", "json"))
    return str(pod["spec"].get("nodeName", ""))


def uid_of(lab: Lab, name: str) -> str:
    return lab.kubectl(
        "get", "pod", name, "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}"
    ).strip()


def ask(lab: Lab, method: str, path: str, body: Any = None) -> Any:
    token = token_file(lab.layout).read_text().strip()
    request = urllib.request.Request(
        f"{lab.scorer_url}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def put_at(lab: Lab, eventually: Eventually, near: str) -> None:
    """Put one worker near the user and the others far; wait until the scheduler has seen it."""
    wanted = {name: NEAR if name == near else FAR for name in ("worker-1", "worker-2", "worker-3")}
    lab.set_latency(wanted)

    def seen() -> bool:
        found = ask(lab, "GET", "/v1/table")["latency"].get("", {})
        return len(found) == 3 and all(
            (found[name] < 80) if ms == NEAR else (found[name] >= FAR)
            for name, ms in wanted.items()
        )

    eventually(seen, seconds=90)
    wait_for_refreshes(lab, eventually)


def wait_for_refreshes(lab: Lab, eventually: Eventually) -> None:
    """Until the plugin has asked for the table twice more, whatever it was answered."""
    before = eventually(lambda: refreshes(lab), seconds=60)
    eventually(lambda: refreshes(lab) >= before + 2, seconds=120)


def refreshes(lab: Lab) -> float:
    try:
        lines = metrics_of_scheduler(lab).splitlines()
    except OSError:  # a machine full of other work; ask again
        return 0.0
    counted = [ln for ln in lines if ln.startswith("pilothouse_scheduler_refreshes_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counted)


@pytest.mark.timeout(900)
def test_the_load_follows_latency_and_every_placement_is_explained(
    lab: Lab, eventually: Eventually
) -> None:
    put_at(lab, eventually, "worker-1")
    before = [place(lab, eventually, f"before-{i}") for i in range(4)]
    assert before == ["worker-1"] * 4, "one node, and the near one"

    put_at(lab, eventually, "worker-2")
    after = [place(lab, eventually, f"after-{i}") for i in range(4)]
    assert after[3] == "worker-2"
    assert after.count("worker-2") >= 3, f"within 3 placements: {after}"

    put_at(lab, eventually, "worker-3")
    again = [place(lab, eventually, f"again-{i}") for i in range(4)]
    assert again[3] == "worker-3"

    for name in [f"{when}-{i}" for when in ("before", "after", "again") for i in range(4)]:
        record = eventually(
            lambda n=name: placements.find([journal(lab.layout)], f"pod/{NAMESPACE}/{n}"),
            seconds=20,
        )
        assert record["node"] == node_of(lab, name)
        assert record["path"] == "scored"
        said = placements.text(record)
        assert "Chosen" in said
        assert "latency" in said
        assert "Margin" in said


@pytest.mark.timeout(900)
def test_a_suggestion_published_for_one_pod_moves_that_pod(
    lab: Lab, eventually: Eventually
) -> None:
    put_at(lab, eventually, "worker-1")
    gated = a_pod("suggested")
    gated["spec"]["schedulingGates"] = [{"name": "pilothouse.dev/wait"}]
    lab.kubectl("create", "-f", "-", text=json.dumps(gated))
    scores = {"worker-3": 100, "worker-1": 0, "worker-2": 0}
    uid = uid_of(lab, "suggested")
    ask(lab, "PUT", f"/v1/suggestions/{uid}", {"scores": scores, "ttl_seconds": 120})
    wait_for_refreshes(lab, eventually)
    lab.kubectl(
        "patch", "pod", "suggested", "-n", NAMESPACE, "--type=json",
        "-p", '[{"op": "remove", "path": "/spec/schedulingGates"}]',
    )  # fmt: skip
    assert eventually(lambda: node_of(lab, "suggested")) == "worker-3"
    assert place(lab, eventually, "not-suggested") == "worker-1"
    record = eventually(
        lambda: placements.find([journal(lab.layout)], f"pod/{NAMESPACE}/suggested"), seconds=20
    )
    assert record["path"] == "overridden"


def scheduler_of(lab: Lab) -> tuple[int, int]:
    entry = lab.component("kube-scheduler")
    return entry.pid, entry.ticks


def is_running(lab: Lab) -> bool:
    from pilothouse.lab import process

    return process.is_alive(*scheduler_of(lab))


def metrics_of_scheduler(lab: Lab) -> str:
    """The scheduler's own counters, asked with the administrator's certificate."""
    import ssl

    planned = lab.planned
    assert planned is not None
    context = ssl.create_default_context(cafile=str(lab.layout.pki / "ca.crt"))
    context.load_cert_chain(lab.layout.pki / "admin.crt", lab.layout.pki / "admin.key")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    url = f"https://127.0.0.1:{planned.ports['kube-scheduler']}/metrics"
    with opener.open(url, timeout=10) as answer:
        return str(answer.read().decode())


def answer_with(body: bytes) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)

    return behave


def hang(_connection: socket.socket) -> None:
    threading.Event().wait(30)


def garbage_table(**changes: Any) -> bytes:
    table = {"apiVersion": "pilothouse.dev/v1alpha1", "serial": "x", "ttlSeconds": 10}
    return json.dumps(table | changes).encode()


@contextmanager
def an_impostor(port: int, behave: Callable[[socket.socket], None]) -> Iterator[None]:
    """Something else at the scorer's address."""
    listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=guarded, args=(connection,), daemon=True).start()

    def guarded(connection: socket.socket) -> None:
        try:
            behave(connection)
        except OSError:
            pass  # the scheduler gave up, as it should
        finally:
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


@pytest.mark.timeout(900)
def test_whatever_becomes_of_the_scorer_every_pod_is_placed(
    lab: Lab, eventually: Eventually
) -> None:
    planned = lab.planned
    assert planned is not None
    before = scheduler_of(lab)
    port = planned.ports["scorer"]

    lab.signal("scorer", signal.SIGSTOP)  # accepts and never answers
    assert place(lab, eventually, "scorer-hung")
    lab.signal("scorer", signal.SIGCONT)

    lab.kill("scorer")
    for i in range(3):
        assert place(lab, eventually, f"scorer-killed-{i}")
    behaviors: dict[str, Callable[[socket.socket], None]] = {
        "hanging": hang,
        "text": answer_with(b"<html>hello</html>"),
        "empty": answer_with(b""),
        "version": answer_with(garbage_table(apiVersion="pilothouse.dev/v9")),
        "huge": answer_with(b" " * (100 << 20)),
        "numbers": answer_with(b'{"ttlSeconds": NaN}'),
        "extreme": answer_with(
            garbage_table(latency={"": {"worker-1": 1e308, "nonesuch": -1e308}}, policy={})
        ),
    }
    for name, behave in behaviors.items():
        with an_impostor(port, behave):
            wait_for_refreshes(lab, eventually)
            assert place(lab, eventually, f"scorer-{name}")
    lab.restart("scorer")
    eventually(lambda: ask_quietly(lab), seconds=120)

    assert scheduler_of(lab) == before
    assert is_running(lab), "the scheduler never restarted"
    assert eventually(lambda: refreshes(lab), seconds=60)
    said = metrics_of_scheduler(lab)
    assert 'pilothouse_scheduler_refreshes_total{result="failed"}' in said
    assert "pilothouse_scheduler_panics_total" not in said


def ask_quietly(lab: Lab) -> Any:
    try:
        return ask(lab, "GET", "/v1/table")
    except OSError:
        return None


@pytest.mark.timeout(900)
def test_explain_prints_a_real_placement(
    lab: Lab, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    from pilothouse.cli import main

    eventually(lambda: ask_quietly(lab), seconds=120)
    place(lab, eventually, "explained")
    which = f"pod/{NAMESPACE}/explained"
    eventually(lambda: placements.find([journal(lab.layout)], which), seconds=20)
    capsys.readouterr()
    assert main(["explain", which, "--journal", str(journal(lab.layout))]) == 0
    said = capsys.readouterr().out
    assert "Placement placement/explained on worker-" in said
    print(said)


@pytest.mark.timeout(900)
def test_the_profile_in_use_is_the_shipped_one(lab: Lab) -> None:
    written = Path(lab.layout.run / "scheduler" / "configuration.yaml").read_text()
    assert "PilothousePlacement" in written
    assert "percentageOfNodesToScore: 100" in written
