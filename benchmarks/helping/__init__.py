# SPDX-License-Identifier: Apache-2.0
"""Lost requests on a real cluster, with agents on and off."""
