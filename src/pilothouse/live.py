# SPDX-License-Identifier: Apache-2.0
"""A live cluster that is acted on: what is seen comes from the observer, what is done goes through
the actuator. In shadow the observer's own cluster is enough; this one is for ``--enforce``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilothouse.act.kubernetes import ClusterActuator
from pilothouse.act.tickets import Ticket
from pilothouse.clients.events import EventWriter
from pilothouse.clients.lease import Leadership
from pilothouse.clients.store import Store
from pilothouse.domain import Action, Receipt, Snapshot, Status, Write
from pilothouse.errors import BackendError
from pilothouse.guard import Charge
from pilothouse.observe import Observer, ShadowCluster

UNREAD = "nobody has looked yet what was done before us"


class ActingCluster(ShadowCluster):
    """Looks as a shadow does, and writes."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        events: EventWriter | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        super().__init__(store, observer, events, leadership)
        self._actuator: ClusterActuator | None = None
        self.last: Snapshot | None = None
        self._took_over = -1  # the epoch of the lease whose predecessors' tickets we have read
        self._unread = UNREAD  # why we have not, once nothing else stands in the way

    def equip(self, actuator: ClusterActuator) -> None:
        """Give it the actuator, which needs to read what this cluster last saw."""
        self._actuator = actuator

    @property
    def actuator(self) -> ClusterActuator:
        assert self._actuator is not None, "an acting cluster is equipped before it is used"
        return self._actuator

    def observe(self) -> Snapshot:
        self.last = super().observe()
        return self.last

    def handover(self) -> Sequence[tuple[Action, Charge, bool]]:
        """What other leaders did and is not over, once per time that we come to lead.

        First they are shut out, or one more ticket of theirs could come after we have read them.
        Until both are done nothing begins, and nothing that had begun goes on.
        """
        if self._took_over == self.leadership.epoch or not self.leadership.is_held:
            return ()
        if self.actuator.objection():
            return ()
        epoch = self.leadership.epoch  # only now: shutting them out may take a greater one
        try:
            tickets = self.actuator.tickets()
        except BackendError as error:
            self._unread = f"what was done before us is not known: {error}"
            return ()
        self._took_over, self._unread = epoch, UNREAD
        return [_adopted(ticket) for ticket in tickets]

    def begin(self, action: Action) -> str:
        return self._why_too_early() or self.actuator.begin(action)

    def execute(self, write: Write, agent: str) -> Receipt:
        if why := self._why_too_early():
            return Receipt(
                intent=write.intent,
                status=Status.SKIPPED,
                detail=why,
                at_seconds=self.clock_seconds,
            )
        return self.actuator.execute(write, agent)

    def _why_too_early(self) -> str:
        """Why what others did is not known to us, as things stand now."""
        why = self.actuator.objection()  # asked first: it may take a greater epoch to be none
        return "" if self._took_over == self.leadership.epoch else why or self._unread

    def find(self, intent: str) -> Receipt | None:
        return self.actuator.find(intent)

    def close(self) -> None:
        super().close()
        self.actuator.close()


def _adopted(ticket: Ticket) -> tuple[Action, Charge, bool]:
    charge = Charge(
        action=ticket.action.id,
        agent=ticket.action.agent,
        at=ticket.made_seconds,
        nodes=ticket.charge.nodes,
        workloads=ticket.charge.workloads,
        namespaces=ticket.charge.namespaces,
        disturbs=ticket.charge.disturbs,
    )
    return ticket.action, charge, ticket.is_open
