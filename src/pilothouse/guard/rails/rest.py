# SPDX-License-Identifier: Apache-2.0
"""Against flapping: a field rests after a change, and is not turned round again and again.

Turning a field round counts, and so does doing again what somebody else undid. Once the allowed
reversals of a window are used up, the field is left alone for the quarantine. Third parties get no
reversals within a window of the last change, so that they cannot put an object into quarantine.
"""

from __future__ import annotations

from pilothouse.domain import Verb, Verdict
from pilothouse.guard.case import Case, refuse
from pilothouse.guard.ledger import field_of


def field_has_rested(case: Case) -> Verdict | None:
    dwell = case.settings.guard.dwell_seconds
    for write in case.plan.writes:
        if write.verb is Verb.EVICT:
            continue
        last = case.ledger.rest(field_of(write))
        if last is not None and case.now - last.at < dwell:
            field = field_of(write).rpartition("#")[2]
            return refuse(
                "dwell",
                f"{field} of {write.target.short} changed {case.now - last.at} s ago, "
                f"rests for {dwell} s",
                used=case.now - last.at,
                allowed=dwell,
                free_at=last.at + dwell,
            )
    return None


def field_is_not_fought_over(case: Case) -> Verdict | None:
    s = case.settings.guard
    allowed = 0 if case.third_party else s.reversals
    for write in case.plan.writes:
        last = case.ledger.rest(field_of(write))
        if last is None or not case.ledger.is_reversal(write, case.now):
            continue
        used, since = _crowded(last.reversals, max(s.reversals, 1), s.window_seconds)
        free_at = since + s.quarantine_seconds if used else 0  # whoever asks
        if case.third_party:
            free_at = max(free_at, last.at + s.window_seconds)
        if s.reversals == 0:
            free_at = max(free_at, last.at + s.quarantine_seconds)
        if case.now < free_at:
            return refuse(
                "reversals",
                f"{write.target.short} was turned round {used} of {allowed} times in this window",
                used=used,
                allowed=allowed,
                free_at=free_at,
            )
    return None


def _crowded(reversals: tuple[int, ...], allowed: int, window: int) -> tuple[int, int]:
    """The last moment at which a window held all allowed reversals, and how many; else (0, 0)."""
    for end in range(len(reversals) - 1, -1, -1):
        inside = [t for t in reversals[: end + 1] if t > reversals[end] - window]
        if len(inside) >= allowed:
            return len(inside), reversals[end]
    return 0, 0
