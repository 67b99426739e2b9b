# SPDX-License-Identifier: Apache-2.0
"""Disagreement is settled here, conservatively and in words."""

from pilothouse.arbitrate.referee import Candidate, Role, arbitrate, role_of

__all__ = ["Candidate", "Role", "arbitrate", "role_of"]
