# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster in another process, with the methods of ``SimCluster``.

A request that got no answer is never sent again here: whether it was done is found out by looking
(``find``), which is the caller's business.
"""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

from pilothouse.domain import Action, Receipt, Snapshot, Toll, Write
from pilothouse.errors import BackendError, UserError
from pilothouse.sim import wire
from pilothouse.sim.command import ActiveStimulus, Command

TIMEOUT_SECONDS = 60.0  # wall clock; a large cluster may advance for a while


class RemoteCluster:
    """One cluster behind a URL, or a fork of it that lives on the server.

    A fork speaks over the connection of the cluster it came from and ends with it.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._fork = 0
        self._connect()
        about = self._call("describe")
        self.name: str = about["name"]
        self.seed: int = about["seed"]
        self.scenario_name: str = about["scenario"]
        self._clock: int = about["clock_seconds"]

    def _connect(self) -> None:
        host, port = _place(self._url)
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)

    @property
    def clock_seconds(self) -> int:
        return self._clock

    def advance(self, seconds: int) -> None:
        """Let cluster time pass from the clock last seen."""
        self.advance_to(self._clock + seconds)

    def advance_to(self, clock_seconds: int) -> None:
        """Let time pass until this clock; asking twice does not advance twice."""
        self._clock = self._call("advance_to", clock_seconds)

    def observe(self) -> Snapshot:
        """What monitoring shows now."""
        snapshot = wire.unpack_snapshot(self._call("observe"))
        self._clock = snapshot.taken_seconds
        return snapshot

    def begin(self, action: Action) -> str:
        return ""

    def execute(self, write: Write, agent: str) -> Receipt:
        """Do one write; raises ``BackendError`` where the answer was lost."""
        return wire.read_receipt(self._call("execute", [wire.plain(write), agent]))

    def find(self, intent: str) -> Receipt | None:
        """The answer this intent got, by looking into the cluster's log."""
        data = self._call("find", intent)
        return None if data is None else wire.read_receipt(data)

    def toll(self) -> Toll:
        """What the cluster cost since its start."""
        return wire.read_toll(self._call("toll"))

    def fork(self) -> RemoteCluster:
        """A copy on the server; close it when done."""
        twin = RemoteCluster.__new__(RemoteCluster)
        twin._url = self._url
        twin._fork = self._call("fork")
        twin.name, twin.seed, twin.scenario_name = self.name, self.seed, self.scenario_name
        twin._clock = self._clock
        twin._connection = self._connection
        return twin

    def stimuli(self) -> tuple[ActiveStimulus, ...]:
        """What is being exercised now."""
        return tuple(wire.read_stimulus(x) for x in self._call("stimuli"))

    def log(self) -> list[Command]:
        """Every command so far, oldest first."""
        return [wire.read_command(x) for x in self._call("log")]

    def save(self) -> bytes:
        """Everything needed to continue elsewhere."""
        data: bytes = self._call("save")
        return data

    def close(self) -> None:
        """Hang up; a fork is only forgotten by the server."""
        if self._fork:
            self._call("close")
        else:
            self._connection.close()

    def _call(self, method: str, argument: Any = None) -> Any:
        body = wire.pack([self._fork, argument])
        try:
            self._connection.request("POST", f"/{method}", body)
            data = self._connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise BackendError(
                f"The simulator at {self._url} did not answer {method}: "
                f"{type(error).__name__} {error}. Start it with: pilothouse sim serve"
            ) from error
        done, answer = wire.unpack(data)
        if not done:
            raise BackendError(f"The simulator refused {method}: {answer}")
        return answer


def _place(url: str) -> tuple[str, int]:
    try:
        address = urlsplit(url)
        host, port = address.hostname, address.port or 80
    except ValueError:  # a port or a host that cannot be one
        host = None
    if not host or address.scheme != "http":
        raise UserError(
            f"The simulator's address must look like http://127.0.0.1:8089, but got {url}."
        )
    return host, port
