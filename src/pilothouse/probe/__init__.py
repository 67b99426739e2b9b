# SPDX-License-Identifier: Apache-2.0
"""The latency probe: runs on a node and measures how far that node is from a user.

It measures when asked, really connecting and really asking: several samples, median and spread.
Answers are kept for a moment so that many callers cost one measurement, and exported for
Prometheus. It measures only users it was told about or whose address is allowed: a probe that
connects wherever it is told would be a tool for attackers.
"""

from pilothouse.probe.measure import Measurement, Samples, measure
from pilothouse.probe.serve import Probe, Users

__all__ = ["Measurement", "Probe", "Samples", "Users", "measure"]
