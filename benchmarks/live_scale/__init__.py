# SPDX-License-Identifier: Apache-2.0
"""The loop in shadow on a large cluster of fake nodes."""
