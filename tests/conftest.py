# SPDX-License-Identifier: Apache-2.0
"""What every test shares: one hypothesis profile."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Two busy cores make single examples slow without making them wrong, and a run of the tests must
# say the same thing twice: random exploration belongs in the benchmarks.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")
