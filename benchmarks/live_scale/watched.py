# SPDX-License-Identifier: Apache-2.0
"""``pilothouse`` with a witness in its cache.

    python -m benchmarks.live_scale.watched NOTES up --kubeconfig F ...

Nothing of the program is changed; two methods are wrapped to write down when they were done, by
the machine's monotonic clock, which every process on it shares.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.live_scale.population import MARKED
from pilothouse.cli import main
from pilothouse.clients.cache import Cache
from pilothouse.clients.store import Store

_MARK = re.compile(rb'"' + re.escape(MARKED).encode() + rb'":"(\d+)"')


def watch(notes: Path) -> None:
    """Write a line for every mark that reaches the cache, and one for the first complete look."""
    file = notes.open("a", buffering=1)
    apply, open_ = Cache._apply, Store.open

    def applied(self: Cache[Any], change: Any) -> None:
        apply(self, change)
        if self.kind.name == "pods" and (found := _MARK.search(change.object)):
            file.write(json.dumps({"mark": int(found[1]), "at": time.monotonic()}) + "\n")

    def opened(self: Store, **options: Any) -> None:
        began = time.monotonic()
        open_(self, **options)
        file.write(json.dumps({"synced_seconds": time.monotonic() - began}) + "\n")

    Cache._apply = applied  # type: ignore[method-assign]
    Store.open = opened  # type: ignore[method-assign]


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
