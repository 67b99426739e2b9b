# SPDX-License-Identifier: Apache-2.0
"""The lab's user as a process: ``python -m pilothouse.lab.ways FILE NODE=HOST:PORT ...``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pilothouse.lab.delay import run

if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[2:])))
