# SPDX-License-Identifier: Apache-2.0
"""Imported traces become rows: features known at a window's end, labels from strictly after it."""
