# SPDX-License-Identifier: Apache-2.0
"""How an object's identity becomes a row's: creation time and a digest of Kubernetes' own uid."""

from __future__ import annotations

import hashlib


def row_uid(uid: str, created_unix: float, start_unix: float) -> int:
    """Ascending with creation, never repeated, the same for every observer of one cluster."""
    # Before the cluster's start cannot be; the mask keeps a lying clock from overflowing.
    seconds = max(int(created_unix - start_unix), 0) & 0x7FFF_FFFF
    digest = hashlib.blake2b(uid.encode(), digest_size=4).digest()
    return (seconds << 32) | int.from_bytes(digest)
