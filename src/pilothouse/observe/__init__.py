# SPDX-License-Identifier: Apache-2.0
"""A live cluster turned into snapshots, with the age and completeness of every source."""

from pilothouse.observe.kubernetes import Observer
from pilothouse.observe.pending import Reason, Wait
from pilothouse.observe.shadow import ShadowCluster
from pilothouse.observe.usage import FirstThatAnswers, MetricsApi, PrometheusUsage, UsagePoll

__all__ = [
    "FirstThatAnswers",
    "MetricsApi",
    "Observer",
    "PrometheusUsage",
    "Reason",
    "ShadowCluster",
    "UsagePoll",
    "Wait",
]
