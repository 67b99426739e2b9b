# SPDX-License-Identifier: Apache-2.0
"""State after the settle window → reward components; and the run's checks on itself."""

from pilothouse.score.scorer import Forkable, Scorer, reward

__all__ = ["Forkable", "Scorer", "reward"]
