# SPDX-License-Identifier: Apache-2.0
"""What forecasters and agents see in a snapshot, computed in one place."""
