# SPDX-License-Identifier: Apache-2.0
"""How long a cycle takes and how much it records, at two sizes."""
