# SPDX-License-Identifier: Apache-2.0
"""Placement, the training side: episodes, the environment, rewards, the trainer and its judges.

A *course* is an episode on paper. ``fleet`` plays courses on the one simulator and serves the
Gymnasium environment and every evaluation; ``world`` is its twin in JAX, asserted equal, for the
trainer alone. What is trained here is served by ``pilothouse.policy``.
"""
