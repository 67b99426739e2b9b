# SPDX-License-Identifier: Apache-2.0
"""Two plans conflict when the objects they touch overlap and their effects disagree."""

from __future__ import annotations

from pilothouse.domain import Plan


def disagreement(first: Plan, second: Plan) -> str:
    """The object and field on which two plans disagree, or nothing.

    Wanting the same change of the same field is a disagreement too: it can happen only once.
    """
    wanted = dict(first.effects)
    for key, direction in second.effects:
        if key in wanted:
            return key if wanted[key] != direction else f"{key} twice"
    return ""
