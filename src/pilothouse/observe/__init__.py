# SPDX-License-Identifier: Apache-2.0
"""A live cluster turned into snapshots, with the age and completeness of every source."""

from pilothouse.observe.figures import FiguresPoll
from pilothouse.observe.kubernetes import Observer
from pilothouse.observe.pending import Wait
from pilothouse.observe.shadow import ShadowCluster
from pilothouse.observe.usage import FirstThatAnswers, MetricsApi, PrometheusUsage, UsagePoll

__all__ = [
    "FiguresPoll",
    "FirstThatAnswers",
    "MetricsApi",
    "Observer",
    "PrometheusUsage",
    "ShadowCluster",
    "UsagePoll",
    "Wait",
]
