# SPDX-License-Identifier: Apache-2.0
"""A node's CPU clock through cpufreq: the highest frequency a policy may use, lowered and restored.

What was set before our first change is kept beside us, so that a restart gives back the operator's
own value and not the hardware's.
"""

from __future__ import annotations

import json
from pathlib import Path

FULL = 1000


class Unavailable(Exception):
    """The kernel offers no way to change the clock."""


class Clock:
    """The cpufreq policies below one sysfs folder."""

    def __init__(self, sysfs: Path, memory: Path) -> None:
        self._root = sysfs / "devices/system/cpu/cpufreq"
        self._memory = memory
        self._before: dict[str, int] = self._recall()

    def set(self, permille: int) -> str:
        """Ask for a share of each policy's own maximum; says what was set."""
        policies = self._policies()
        if permille >= FULL:
            return self.restore()
        said = []
        for policy in policies:
            before = self._before.get(policy.name)
            if before is None:
                before = self._before[policy.name] = _read(policy / "scaling_max_freq")
                self._remember()
            lowest = _read(policy / "cpuinfo_min_freq")
            wanted = max(before * permille // FULL, lowest)
            if _read(policy / "scaling_max_freq") != wanted:
                _write(policy / "scaling_max_freq", wanted)
            said.append(f"{policy.name} at most {wanted} kHz")
        return ", ".join(said)

    def restore(self) -> str:
        """Give every policy its own value back."""
        for policy in self._policies():
            before = self._before.get(policy.name)
            if before is not None and _read(policy / "scaling_max_freq") != before:
                _write(policy / "scaling_max_freq", before)
        self._before = {}
        self._memory.unlink(missing_ok=True)
        return "default"

    @property
    def is_lowered(self) -> bool:
        return bool(self._before)

    def _policies(self) -> list[Path]:
        found = sorted(p for p in self._root.glob("policy*") if (p / "scaling_max_freq").exists())
        if not found:
            raise Unavailable(f"unavailable: the kernel offers no cpufreq policy in {self._root}")
        return found

    def _recall(self) -> dict[str, int]:
        try:
            known = json.loads(self._memory.read_text())
        except FileNotFoundError:
            return {}
        return {str(name): int(value) for name, value in known.items()}

    def _remember(self) -> None:
        partial = self._memory.with_suffix(".new")
        partial.write_text(json.dumps(self._before))
        partial.replace(self._memory)


def _read(path: Path) -> int:
    return int(path.read_text().strip())


def _write(path: Path, value: int) -> None:
    path.write_text(f"{value}\n")
