# SPDX-License-Identifier: Apache-2.0
"""Decision → sentences and margins; reads the record, never recomputes it."""

from pilothouse.explain.sentences import Account, clock, headline, lines, text, wish

__all__ = ["Account", "clock", "headline", "lines", "text", "wish"]
