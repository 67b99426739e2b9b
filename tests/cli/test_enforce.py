# SPDX-License-Identifier: Apache-2.0
"""Coming to lead: whoever led before is shut out before anything else is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pilothouse.cli.enforce import Acting
from pilothouse.settings import Settings


@pytest.mark.parametrize("why", ["", "switched off in the cluster"])
def test_leader_moves_the_fence_as_soon_as_the_lease_is_its_own(why: str) -> None:
    acting, said = Acting(Settings()), list[str]()
    held = iter([False, False, True])
    asked: list[tuple[bool, bool]] = []  # restoring, and whether the lease was ours by then

    class Leadership:
        rival = ""
        is_ours = False

        @property
        def is_held(self) -> bool:
            self.is_ours = next(held)
            return self.is_ours

    def objection(*, restoring: bool) -> str:
        asked.append((restoring, acting.leadership.is_ours))  # type: ignore[attr-defined]
        return why

    acting.leadership = Leadership()  # type: ignore[assignment]
    standing: Any = SimpleNamespace(objection=objection)
    acting.standing = standing
    acting.wait_to_lead(said.append)
    assert asked == [(True, True)]
    assert said == ([f"Not acting yet: {why}"] if why else [])
