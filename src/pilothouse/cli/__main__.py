# SPDX-License-Identifier: Apache-2.0
"""``python -m pilothouse.cli``: the same as ``pilothouse``."""

import sys

from pilothouse.cli import main

sys.exit(main())
