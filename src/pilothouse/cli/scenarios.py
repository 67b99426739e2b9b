# SPDX-License-Identifier: Apache-2.0
"""``pilothouse scenarios``: what can be run, in one line each."""

from __future__ import annotations

from pilothouse.cli.output import AsJson, print_json, print_table


def scenarios(as_json: AsJson = False) -> None:
    """List the scenarios that `up --scenario NAME` accepts."""
    from pilothouse.scenarios import load, names

    known = [(name, load(name).description) for name in names()]
    if as_json:
        print_json([{"name": name, "description": text} for name, text in known])
    else:
        print_table([(name, " ".join(text.split())) for name, text in known])
