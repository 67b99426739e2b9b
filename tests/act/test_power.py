# SPDX-License-Identifier: Apache-2.0
"""The power hook: real commands and a real web server, and every way in which they object."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pilothouse.act import power
from pilothouse.act.power import CommandHook, HookError, NoHook, WebHook, hook_of


def a_command(folder: Path, script: str) -> str:
    path = folder / "power hook"  # a name that only survives when it is quoted
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"'{path}' --rack 7"


@contextmanager
def answering(
    status: int, held: threading.Event | None = None, **headers: str
) -> Iterator[tuple[str, list[Any]]]:
    """A web server on this machine that gives one answer, after ``held`` if that is given."""
    asked: list[Any] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Content-Type"], json.loads(body)))
            if held is not None:
                held.wait(10)
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:  # what a redirected POST would become
            asked.append((self.path, "GET", None))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/power", asked
    finally:
        if held is not None:
            held.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_setting_says_which_hook_it_is() -> None:
    assert isinstance(hook_of(""), NoHook)
    assert isinstance(hook_of("/usr/sbin/power --rack 7"), CommandHook)
    assert isinstance(hook_of("http://bmc.example/power"), WebHook)
    assert isinstance(hook_of("https://bmc.example/power"), WebHook)


def test_without_a_hook_the_machine_goes_on_running() -> None:
    assert "goes on running" in hook_of("").switch("n1", awake=False, intent="d.0.0")


@pytest.mark.parametrize(("awake", "word"), [(False, "sleep"), (True, "wake")])
def test_command_is_told_the_word_and_the_node(tmp_path: Path, awake: bool, word: str) -> None:
    hook = hook_of(a_command(tmp_path, 'echo "$# $1 $2 $3 $4"'))
    said = hook.switch("worker-1; reboot", awake=awake, intent="d.0.0")  # no shell reads the name
    assert said == f"power hook: 4 --rack 7 {word} worker-1; reboot"


def test_silent_command_that_ends_well_is_done(tmp_path: Path) -> None:
    assert hook_of(a_command(tmp_path, "")).switch("n1", awake=True, intent="i") == (
        "power hook: done"
    )


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo switching; echo 'no such machine' >&2; exit 3", "ended with 3 .*no such machine"),
        ("echo 'locked by rack 7'; exit 1", "ended with 1 .*locked by rack 7"),
        ("exit 2", "ended with 2 .*nothing"),
        ("kill -9 $$", "ended with -9"),
        ("printf 'rack \\377'; exit 1", "ended with 1 .*rack \ufffd"),  # no text at all
    ],
)
def test_failing_command_is_an_objection_in_its_own_words(
    tmp_path: Path, script: str, told: str
) -> None:
    with pytest.raises(HookError, match=told):
        hook_of(a_command(tmp_path, script)).switch("n1", awake=False, intent="i")


def test_command_that_is_not_there_is_an_objection(tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"did not run: .*No such file"):
        hook_of(str(tmp_path / "nowhere")).switch("n1", awake=False, intent="i")


def test_command_that_hangs_is_ended_and_an_objection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "HOOK_SECONDS", 0.2)
    with pytest.raises(HookError, match=r"did not run: .*timed out"):
        hook_of(a_command(tmp_path, "exec sleep 30")).switch("n1", awake=False, intent="i")


@pytest.mark.parametrize(("awake", "state"), [(False, "asleep"), (True, "awake")])
@pytest.mark.parametrize("status", [200, 202, 204])
def test_web_hook_is_posted_the_node_the_state_and_the_intent(
    awake: bool, state: str, status: int
) -> None:
    with answering(status) as (address, asked):
        said = hook_of(address).switch("worker-1", awake=awake, intent="d.0.0")
    assert said == f"power hook: {status}"
    body = {"node": "worker-1", "state": state, "intent": "d.0.0"}
    assert asked == [("/power", "application/json", body)]


@pytest.mark.parametrize("status", [304, 400, 401, 403, 404, 409, 429, 500, 503])
def test_web_hook_that_does_not_say_2xx_objects(status: int) -> None:
    with answering(status) as (address, asked):
        with pytest.raises(HookError, match=f"did not agree: .*{status}"):
            hook_of(address).switch("worker-1", awake=False, intent="d.0.0")
        assert len(asked) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_web_hook_that_points_elsewhere_objects_and_is_not_followed(status: int) -> None:
    with answering(status, Location="/elsewhere") as (address, asked):
        with pytest.raises(HookError, match=f"did not agree: .*{status}"):
            hook_of(address).switch("worker-1", awake=False, intent="d.0.0")
        assert [path for path, _, _ in asked] == ["/power"]


def test_web_hook_that_hangs_objects_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "HOOK_SECONDS", 0.2)
    with (
        answering(200, threading.Event()) as (address, _),
        pytest.raises(HookError, match=r"did not agree: .*timed out"),
    ):
        hook_of(address).switch("worker-1", awake=False, intent="d.0.0")


def test_web_hook_that_speaks_no_http_objects() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            caller, _ = server.accept()
            with caller:
                heard = b""  # all of it: who closes before it has read everything resets
                while not heard.endswith(b"}"):
                    heard += caller.recv(65536)
                caller.sendall(b"220 mail ready\r\n")

        thread = threading.Thread(target=babble)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/power"
        with pytest.raises(HookError, match=r"did not agree: .*220 mail"):
            hook_of(address).switch("worker-1", awake=False, intent="d.0.0")
        thread.join()


def test_web_hook_that_nobody_serves_objects() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else's
        address = f"http://127.0.0.1:{free.getsockname()[1]}/power"
        with pytest.raises(HookError, match=r"did not agree: .*refused"):
            hook_of(address).switch("worker-1", awake=False, intent="d.0.0")


def test_web_hook_is_asked_directly_whatever_proxy_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(200) as (address, asked):
        hook_of(address).switch("worker-1", awake=True, intent="d.0.0")
    assert len(asked) == 1
