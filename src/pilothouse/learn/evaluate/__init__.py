# SPDX-License-Identifier: Apache-2.0
"""Judging forecasters: honest splits, baselines beside every figure, intervals by job."""
