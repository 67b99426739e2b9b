# SPDX-License-Identifier: Apache-2.0
"""Taking back from tickets alone, against a small API server in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilothouse import clients
from pilothouse.act.tickets import PATH, Step, Ticket, from_document, to_document
from pilothouse.cli.control import halt, resume
from pilothouse.cli.janitor import restore
from pilothouse.clients import requests
from pilothouse.clients.requests import Refusal
from pilothouse.domain import Action, ActionKind, Ref, Verb, Write
from pilothouse.errors import BackendError
from pilothouse.janitor import Janitor

NODE = "/api/v1/nodes/n1"
ACCOUNTS = "/api/v1/namespaces/pilothouse-system/serviceaccounts"
SWITCH, GATES = f"{ACCOUNTS}/pilothouse-switch", f"{ACCOUNTS}/pilothouse-gates"
ACTING = "pilothouse.dev/acting"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/pilothouse-system/leases/pilothouse"
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/cart"


class FakeServer:
    """Objects by path; patches merge, and the field manager of replicas is kept."""

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {
            SWITCH: {"metadata": {"annotations": {ACTING: "enabled"}}},
            GATES: {"metadata": {"annotations": {}}},
            LEASE: {"spec": {"holderIdentity": "loop", "renewTime": "1"}},
        }
        self.writes: list[tuple[str, str]] = []

    def get(self, path: str, parameters: Any = None) -> dict[str, Any]:
        if path not in self.things:
            raise Refusal(404, f"{path} is not there")
        return self.things[path]

    def every(self, path: str, parameters: Any = None) -> list[dict[str, Any]]:
        return [
            thing
            for key, thing in sorted(self.things.items())
            if key.startswith(f"{path}/") or (path == "/api/v1/pods" and "/pods/" in key)
        ]

    def patch(
        self, path: str, body: dict[str, Any], *, author: str, audit_id: str, kind: str = ""
    ) -> dict[str, Any]:
        self.writes.append((path, audit_id))
        thing = self.get(path.removesuffix("/scale").removesuffix("/status"))
        merge(thing, {k: v for k, v in body.items() if k != "metadata"})
        merge(thing, {"metadata": {"annotations": body.get("metadata", {}).get("annotations")}})
        if path.endswith("/scale"):
            thing["metadata"]["managedFields"] = owned(author)
        return thing

    def close(self) -> None:
        """Nothing is open."""

    def delete(self, path: str, body: dict[str, Any], *, audit_id: str) -> dict[str, Any]:
        return self.things.pop(path)


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            continue
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def owned(manager: str) -> list[dict[str, Any]]:
    return [{"manager": manager, "time": "1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]


def an_action(name: str, write: Write) -> Action:
    return Action(
        id=name,
        proposal=0,
        agent="safety",
        kind=ActionKind.REPLICATE,
        target=write.target,
        writes=(write,),
        inverse=(),
        expires_seconds=100,
    )


def a_ticket(name: str, undo: Step, *, expires: float = 1_000.0) -> Ticket:
    target = Ref("c", "workload", "shop", "cart")
    write = Write(verb=undo.verb, target=target, uid=1, value=undo.original, original=undo.value)
    return Ticket(
        action=an_action(name, write),
        made_seconds=10,
        made_unix=900.0,
        expires_unix=expires,
        keep_unix=5_000.0,
        holder="loop",
        epoch=1,
        undo=(undo,),
    )


SCALE_DOWN = Step(
    verb=Verb.SCALE,
    kind="Deployment",
    namespace="shop",
    name="cart",
    uid="u-cart",
    value=2,
    original=3,
    expect=3,
)
UNTAINT = Step(verb=Verb.TAINT, kind="Node", name="n1", uid="u-n1", value=0, original=1, expect=1)


@pytest.fixture
def server() -> FakeServer:
    server = FakeServer()
    server.things[DEPLOYMENT] = {
        "metadata": {
            "uid": "u-cart",
            "resourceVersion": "1",
            "managedFields": owned("pilothouse:1:us:d.0.0"),
        },
        "spec": {"replicas": 3},
    }
    taint = {"key": "pilothouse.dev/out-of-service", "value": "d.1", "effect": "NoSchedule"}
    server.things[NODE] = {
        "metadata": {"uid": "u-n1", "resourceVersion": "1"},
        "spec": {"taints": [taint]},
    }
    return server


def put(server: FakeServer, ticket: Ticket) -> None:
    server.things[f"{PATH}/{ticket.name}"] = to_document(ticket)


def phase(server: FakeServer, name: str) -> str:
    return from_document(server.things[f"{PATH}/{name}"]).phase


class Clock:
    def __init__(self) -> None:
        self.wall, self.tick = 1_000.0, 0.0

    def janitor(self, server: FakeServer) -> Janitor:
        return Janitor(
            server,  # type: ignore[arg-type]
            wall=lambda: self.wall,
            clock=lambda: self.tick,
        )


def test_ticket_survives_the_way_to_the_server_and_back() -> None:
    ticket = a_ticket("d.0", SCALE_DOWN)
    assert from_document(to_document(ticket)) == ticket


def test_ticket_that_nobody_of_ours_wrote_is_an_error_with_its_name() -> None:
    with pytest.raises(BackendError, match="odd"):
        from_document({"metadata": {"name": "odd"}, "spec": {}})


def test_ticket_in_force_is_left_alone(server: FakeServer) -> None:
    put(server, a_ticket("d.0", SCALE_DOWN, expires=2_000.0))
    assert Clock().janitor(server).sweep().open == 1
    assert server.writes == []


def test_expired_action_is_taken_back_after_the_loops_grace(server: FakeServer) -> None:
    put(server, a_ticket("d.0", SCALE_DOWN))
    clock = Clock()
    janitor = clock.janitor(server)
    clock.wall = 1_005.0
    janitor.sweep()
    assert server.things[DEPLOYMENT]["spec"]["replicas"] == 3
    clock.wall = 1_020.0
    report = janitor.sweep()
    assert server.things[DEPLOYMENT]["spec"]["replicas"] == 2
    assert server.writes[0] == (f"{DEPLOYMENT}/scale", "janitor.d.0.0")
    assert phase(server, "d.0") == "Restored"
    assert "it expired" in report.ended[0]


def test_value_that_somebody_else_set_is_left_alone(server: FakeServer) -> None:
    put(server, a_ticket("d.0", SCALE_DOWN))
    server.things[DEPLOYMENT]["metadata"]["managedFields"] = owned("kubectl")
    clock = Clock()
    clock.wall = 1_100.0
    clock.janitor(server).sweep()
    assert server.things[DEPLOYMENT]["spec"]["replicas"] == 3
    assert phase(server, "d.0") == "Released"


def test_value_of_a_newer_action_of_ours_is_left_to_its_own_ticket(server: FakeServer) -> None:
    put(server, a_ticket("d.0", SCALE_DOWN))
    server.things[DEPLOYMENT]["metadata"]["managedFields"] = owned("pilothouse:1:us:e.0.0")
    clock = Clock()
    clock.wall = 1_100.0
    clock.janitor(server).sweep()
    assert server.things[DEPLOYMENT]["spec"]["replicas"] == 3


def test_value_alone_decides_where_the_server_keeps_no_owners(server: FakeServer) -> None:
    put(server, a_ticket("d.0", SCALE_DOWN))
    server.things[DEPLOYMENT]["metadata"].pop("managedFields")
    clock = Clock()
    clock.wall = 1_100.0
    clock.janitor(server).sweep()
    assert server.things[DEPLOYMENT]["spec"]["replicas"] == 2


def test_namesake_is_never_touched(server: FakeServer) -> None:
    put(server, a_ticket("d.0", SCALE_DOWN))
    server.things[DEPLOYMENT]["metadata"]["uid"] = "another"
    clock = Clock()
    clock.wall = 1_100.0
    clock.janitor(server).sweep()
    assert server.things[DEPLOYMENT]["spec"]["replicas"] == 3
    assert phase(server, "d.0") == "Released"


@pytest.mark.parametrize("how", ["switch", "dead", "asked"])
def test_everything_is_taken_back_at_once_when_it_must_be(server: FakeServer, how: str) -> None:
    put(server, a_ticket("d.1", UNTAINT, expires=9_000.0))
    clock = Clock()
    janitor = clock.janitor(server)
    janitor.sweep()
    if how == "switch":
        server.things[SWITCH]["metadata"]["annotations"][ACTING] = "disabled"
    clock.tick = 31.0 if how == "dead" else 1.0
    janitor.sweep(everything=how == "asked")
    assert server.things[NODE]["spec"]["taints"] == []
    assert phase(server, "d.1") == "Restored"


def test_loop_that_renews_its_lease_is_not_dead(server: FakeServer) -> None:
    put(server, a_ticket("d.1", UNTAINT, expires=9_000.0))
    clock = Clock()
    janitor = clock.janitor(server)
    for beat in range(10):
        clock.tick += 10
        server.things[LEASE]["spec"]["renewTime"] = str(beat)
        janitor.sweep()
    assert len(server.things[NODE]["spec"]["taints"]) == 1


def test_closed_ticket_is_forgotten_once_no_budget_needs_it(server: FakeServer) -> None:
    put(server, a_ticket("d.1", UNTAINT))
    clock = Clock()
    janitor = clock.janitor(server)
    clock.wall = 1_100.0
    janitor.sweep()
    assert f"{PATH}/d.1" in server.things
    clock.wall = 5_001.0
    assert janitor.sweep().forgotten == 1
    assert f"{PATH}/d.1" not in server.things


def test_unreadable_ticket_stops_nobody(server: FakeServer) -> None:
    server.things[f"{PATH}/odd"] = {"metadata": {"name": "odd"}, "spec": {}}
    put(server, a_ticket("d.1", UNTAINT))
    clock = Clock()
    clock.wall = 1_100.0
    report = clock.janitor(server).sweep()
    assert server.things[NODE]["spec"]["taints"] == []
    assert any("odd" in problem for problem in report.problems)


def a_held_pod(name: str, **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "shop", "uid": f"u-{name}", "resourceVersion": "1"}
    gates = [{"name": "pilothouse.dev/queue"}, {"name": "theirs"}]
    return {"metadata": meta | {"labels": labels}, "spec": {"schedulingGates": gates}}


def pods(server: FakeServer, *held: dict[str, Any]) -> None:
    for pod in held:
        server.things[f"/api/v1/namespaces/shop/pods/{pod['metadata']['name']}"] = pod


def test_gate_is_opened_once_its_namespace_is_not_queued(server: FakeServer) -> None:
    pods(server, a_held_pod("a"))
    gates = server.things[GATES]["metadata"]["annotations"]
    gates["gate.pilothouse.dev/shop"] = "queue"
    janitor = Clock().janitor(server)
    assert janitor.sweep().released == []
    gates.pop("gate.pilothouse.dev/shop")
    assert janitor.sweep().released == ["shop/a"]
    pod = server.things["/api/v1/namespaces/shop/pods/a"]
    assert pod["spec"]["schedulingGates"] == [{"name": "theirs"}]


def test_deprioritized_pod_goes_after_the_others(server: FakeServer) -> None:
    pods(server, a_held_pod("a", **{"pilothouse.dev/release": "last"}), a_held_pod("b"))
    janitor = Clock().janitor(server)
    assert janitor.sweep().released == ["shop/b"]
    assert janitor.sweep().released == ["shop/a"]


def test_restore_ends_when_no_pod_waits_at_our_gate(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """More pods than one sweep releases: after an uninstall nobody would release the others."""
    pods(server, *(a_held_pod(f"p{n}") for n in range(120)))
    assert (len((first := Janitor(server).sweep()).released), first.held) == (50, 70)  # type: ignore[arg-type]
    monkeypatch.setattr(clients, "from_kubeconfig", lambda _: None)
    monkeypatch.setattr(requests, "Requests", lambda _: server)
    restore(everything=True, kubeconfig=Path("admin"))
    held = [
        key
        for key, thing in server.things.items()
        if "/pods/" in key and {"name": "pilothouse.dev/queue"} in thing["spec"]["schedulingGates"]
    ]
    assert held == []
    assert capsys.readouterr().out.endswith("Nothing of ours is in force.\n")


def test_restore_fails_while_something_may_still_be_in_force(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An uninstall must stop there: a ticket nobody can read may be of an action in force."""
    server.things[f"{PATH}/odd"] = {"metadata": {"name": "odd"}, "spec": {}}
    monkeypatch.setattr(clients, "from_kubeconfig", lambda _: None)
    monkeypatch.setattr(requests, "Requests", lambda _: server)
    monkeypatch.setattr("pilothouse.cli.janitor.GIVE_UP_SECONDS", -1.0)
    with pytest.raises(BackendError, match="odd"):
        restore(everything=True, kubeconfig=Path("admin"))


def test_halt_and_resume_write_what_the_janitor_reads(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "from_kubeconfig", lambda _: None)
    monkeypatch.setattr(requests, "Requests", lambda _: server)
    server.things[f"{PATH}/d.0"] = to_document(a_ticket("d.0", SCALE_DOWN))
    janitor = Clock().janitor(server)
    resume(kubeconfig=Path("cluster"))
    assert janitor.sweep().ended == []
    halt(reason="incident 12", kubeconfig=Path("cluster"))
    assert (
        server.things[SWITCH]["metadata"]["annotations"]["pilothouse.dev/reason"] == "incident 12"
    )
    assert "kill switch" in janitor.sweep().ended[0]
