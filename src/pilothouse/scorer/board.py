# SPDX-License-Identifier: Apache-2.0
"""What the scorer knows at this moment: policy, latencies, suggestions, nodes to avoid.

Everything that comes from outside has an expiry. A policy file that cannot be run is refused and
counted; the one before stays. Safe to use from several threads.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pilothouse import policy
from pilothouse.errors import PilothouseError
from pilothouse.policy import Policy
from pilothouse.policy.machines import Machine
from pilothouse.scorer.view import View

TABLE_VERSION = "pilothouse.dev/v1alpha1"
TABLE_SECONDS = 10.0  # how long the scheduler may go on without us
LATENCY_SECONDS = 30.0  # how long a measurement is believed
MOST_SUGGESTIONS = 10_000
# Of all scores together. The plugin refuses a table above 16 MiB, and latencies are in it too.
MOST_SUGGESTED_BYTES = 8 << 20
DEFAULT_USER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One measurement of the way from a node to a user."""

    milliseconds: float
    spread_ms: float
    at: float  # of the board's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Scores that somebody else published for one pod."""

    scores: Mapping[str, float]
    source: str
    expires: float
    size: int  # bytes in the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """How the last attempt to load a policy went."""

    ok: bool
    detail: str


class PolicySource:
    """Where the policy comes from: a shipped one by name, or a file that may change."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = None if name in policy.shipped_names() else Path(name)
        self._seen: tuple[object, ...] = ()

    def changed(self) -> bool:
        """Whether the files are others than when they were last looked at."""
        found: list[object] = []
        files: tuple[Path, ...] = ()
        if self.path is not None:
            try:
                files = policy.files_of(self.path)
            except PilothouseError as error:  # a folder with several policies, or with none
                found.append(str(error))
            for file in files:
                try:
                    stat = file.stat()
                    found.append((str(file), stat.st_mtime_ns, stat.st_size, stat.st_ino))
                except OSError:
                    found.append(None)
        before, self._seen = self._seen, (tuple(found),)
        return self._seen != before

    def read(self) -> Policy:
        return policy.shipped(self.name) if self.path is None else policy.read(self.path)


@dataclass(slots=True, kw_only=True, eq=False)
class Board:
    """The one place that is read by every endpoint."""

    view: View
    policy: Policy | None = None
    clock: Callable[[], float] = time.monotonic
    reloads: list[Reload] = field(default_factory=list)
    _latency: dict[str, dict[str, Latency]] = field(default_factory=dict)
    _suggestions: dict[str, Suggestion] = field(default_factory=dict)
    _avoid: dict[str, float] = field(default_factory=dict)  # node to expiry
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, source: PolicySource) -> Reload:
        """Take the policy at its source, or keep the one before and say why."""
        try:
            found = source.read()
        except PilothouseError as error:
            kept = f" {self.policy.version} stays." if self.policy else ""
            outcome = Reload(ok=False, detail=f"{error}{kept}")
        else:
            self.policy = found
            outcome = Reload(ok=True, detail=f"{found.version} loaded.")
        self.reloads.append(outcome)
        del self.reloads[:-100]
        return outcome

    def measured(self, user: str, node: str, latency: Latency) -> None:
        with self._lock:
            if user not in self._latency:
                self._forget()
            self._latency.setdefault(user, {})[node] = latency

    def latencies(self, user: str = DEFAULT_USER) -> dict[str, Latency]:
        """The measurements that are still believed."""
        oldest = self.clock() - LATENCY_SECONDS
        with self._lock:
            return {n: m for n, m in self._latency.get(user, {}).items() if m.at >= oldest}

    def users(self) -> list[str]:
        """Whose latency is known."""
        with self._lock:
            self._forget()
            return sorted(self._latency)

    def _forget(self) -> None:
        """Users that nothing is believed of any more: pods may name ever new ones."""
        oldest = self.clock() - LATENCY_SECONDS
        known = {u for u, of in self._latency.items() if any(m.at >= oldest for m in of.values())}
        for user in self._latency.keys() - known:
            del self._latency[user]

    def publish(self, uid: str, scores: Mapping[str, float], seconds: float, source: str) -> bool:
        """Keep a suggestion until it expires; False when there are too many already."""
        now = self.clock()
        made = Suggestion(
            scores=dict(scores),
            source=source,
            expires=now + seconds,
            size=len(msgspec.json.encode(scores)),
        )
        with self._lock:
            self._suggestions = {u: s for u, s in self._suggestions.items() if s.expires > now}
            others = [s.size for u, s in self._suggestions.items() if u != uid]
            if len(others) >= MOST_SUGGESTIONS or sum(others) + made.size > MOST_SUGGESTED_BYTES:
                return False
            self._suggestions[uid] = made
        return True

    def suggestion(self, uid: str) -> Suggestion | None:
        found = self._suggestions.get(uid)
        return found if found is not None and found.expires > self.clock() else None

    def avoid(self, nodes: Mapping[str, float]) -> None:
        """Nodes to leave alone, each for so many seconds; replaces the list before."""
        now = self.clock()
        self._avoid = {node: now + seconds for node, seconds in nodes.items()}

    def avoided(self) -> list[str]:
        now = self.clock()
        return sorted(node for node, expires in self._avoid.items() if expires > now)

    def machines(self) -> list[Machine]:
        return list(self.view.machines())

    def table(self, known_policy: str = "") -> bytes:
        """All the plugin needs, as JSON; weights only when the plugin does not have them yet."""
        now = self.clock()
        latency = {
            user: {node: round(m.milliseconds, 3) for node, m in self.latencies(user).items()}
            for user in self.users()
        }
        power = {
            m.name: m.idle_power_share
            for m in self.view.machines()
            if m.idle_power_share == m.idle_power_share
        }
        with self._lock:
            suggestions = {
                uid: {"scores": dict(s.scores), "expiresInSeconds": round(s.expires - now, 3)}
                for uid, s in self._suggestions.items()
                if s.expires > now
            }
        content = {
            "policy": self._policy_part(known_policy),
            "latency": latency,
            "idlePowerShare": power,
            "avoid": self.avoided(),
            "suggestions": suggestions,
        }
        serial = hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:12]
        head = {"apiVersion": TABLE_VERSION, "serial": serial, "ttlSeconds": TABLE_SECONDS}
        return msgspec.json.encode(head | content)

    def _policy_part(self, known: str) -> dict[str, object] | None:
        if self.policy is None:
            return None
        part: dict[str, object] = {"version": self.policy.version}
        if known != self.policy.version:
            part["card"] = self.policy.card
            part["weights"] = base64.b64encode(self.policy.weights).decode()
        return part
