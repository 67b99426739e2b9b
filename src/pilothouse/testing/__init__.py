# SPDX-License-Identifier: Apache-2.0
"""Builders, fakes, clocks, failpoints and conformance suites; only tests import it."""
