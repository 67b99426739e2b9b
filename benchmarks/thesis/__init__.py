# SPDX-License-Identifier: Apache-2.0
"""The thesis's second test on real workers."""
