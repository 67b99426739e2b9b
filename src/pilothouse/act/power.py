# SPDX-License-Identifier: Apache-2.0
"""Turning machines off and on, by whoever can: a command or a web address of the operator's.

Kubernetes has no switch for a machine. The hook is told ``sleep`` or ``wake`` and the node's name;
it answers by its exit status or its HTTP status, within a minute.
"""

from __future__ import annotations

import http.client
import shlex
import subprocess
import urllib.error
import urllib.request
from typing import Any, Protocol

import msgspec

HOOK_SECONDS = 60.0


class PowerHook(Protocol):
    """Says what happened; an objection is an exception of ``HookError``."""

    def switch(self, node: str, *, awake: bool, intent: str) -> str: ...


class HookError(Exception):
    """The machine was not switched."""


class NoHook:
    """Nobody can turn this machine off: it goes on running, empty and closed."""

    def switch(self, node: str, *, awake: bool, intent: str) -> str:
        return "no power hook, the machine goes on running"


class CommandHook:
    """Runs ``COMMAND sleep|wake NODE`` without a shell."""

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command)

    def switch(self, node: str, *, awake: bool, intent: str) -> str:
        words = [*self._words, "wake" if awake else "sleep", node]
        try:
            ended = subprocess.run(
                words,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=HOOK_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HookError(f"the power hook {self._words[0]} did not run: {error}") from error
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip()[-200:] or "nothing"
            raise HookError(f"the power hook ended with {ended.returncode} and said: {said}")
        return f"power hook: {ended.stdout.strip()[:200] or 'done'}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would come as a GET without its words, and a login page answers 200."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class WebHook:
    """Posts ``{"node", "state", "intent"}``; anything but 2xx is an objection."""

    def __init__(self, address: str) -> None:
        self._address = address

    def switch(self, node: str, *, awake: bool, intent: str) -> str:
        state = "awake" if awake else "asleep"
        body = msgspec.json.encode({"node": node, "state": state, "intent": intent})
        request = urllib.request.Request(
            self._address, data=body, headers={"Content-Type": "application/json"}, method="POST"
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
        try:
            with opener.open(request, timeout=HOOK_SECONDS) as answer:
                return f"power hook: {answer.status}"
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise HookError(f"the power hook {self._address} did not agree: {error}") from error


def hook_of(setting: str) -> PowerHook:
    """The hook a setting names; none where it names none."""
    if not setting:
        return NoHook()
    return WebHook(setting) if setting.startswith(("http://", "https://")) else CommandHook(setting)
