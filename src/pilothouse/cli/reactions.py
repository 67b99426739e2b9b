# SPDX-License-Identifier: Apache-2.0
"""``pilothouse reactions``: how late the cluster's own autoscalers were, from the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from pilothouse.cli.output import AsJson, JournalOption, print_json, print_table, progress

if TYPE_CHECKING:
    from pilothouse.domain import Reaction

NEVER = "never"


def reactions(journal: JournalOption = None, as_json: AsJson = False) -> None:
    """List how long autoscaling took: from load to decision, to a node, to Running (measured)."""
    import msgspec

    from pilothouse.home import latest_journal
    from pilothouse.journal import JournalReader

    found: list[Reaction] = []
    with progress("Reading", quiet=as_json) as advance:
        for cycle in JournalReader(journal or latest_journal()).cycles():
            found += cycle.snapshot.reactions
            advance()
    if as_json:
        print_json({"reactions": msgspec.to_builtins(found), "median": _medians(found)})
        return
    if not found:
        typer.echo("No autoscaler reacted to a load in this journal.")
        return
    heading = ("workload", "began", "decided", "node", "running", "replicas")
    print_table([heading, *(_row(one) for one in found), _summary(found)])


def _row(one: Reaction) -> tuple[str, ...]:
    from pilothouse.explain import clock

    return (
        f"{one.namespace}/{one.name}",
        clock(one.began_seconds),
        _seconds(one.decided_seconds),
        _seconds(one.node_seconds),
        _seconds(one.running_seconds),
        f"{one.replicas_before} to {one.replicas_after}",
    )


def _summary(found: list[Reaction]) -> tuple[str, ...]:
    middle = _medians(found)
    steps = ("decided_seconds", "node_seconds", "running_seconds")
    figures = (_seconds(middle[step]) for step in steps)
    return ("median", "", *figures, f"{len(found)} reactions")


def _medians(found: list[Reaction]) -> dict[str, Any]:
    from statistics import median

    from pilothouse.domain.observed import NEVER as NO_TIME

    middle: dict[str, Any] = {}
    for step in ("decided_seconds", "node_seconds", "running_seconds"):
        known = [getattr(one, step) for one in found if getattr(one, step) != NO_TIME]
        middle[step] = round(median(known)) if known else None
    return middle


def _seconds(value: int | None) -> str:
    return NEVER if value is None or value < 0 else f"{value} s"
