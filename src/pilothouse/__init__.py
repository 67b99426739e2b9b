# SPDX-License-Identifier: Apache-2.0
"""Pilothouse watches a cluster, forecasts trouble, arbitrates between agents, acts and explains."""

__version__ = "0.1.0"

__all__ = ["__version__"]
