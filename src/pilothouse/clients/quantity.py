# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities as whole numbers in the snapshot's units.

Rounded up, as the scheduler rounds: half a millicore still takes one.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from pilothouse.errors import BackendError

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal(1).scaleb(-9),
    "u": Decimal(1).scaleb(-6),
    "m": Decimal(1).scaleb(-3),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]?|[KMGTPE]i)")
LARGEST = 2**31 - 1  # what a column holds


@lru_cache(maxsize=4096)
def parse(text: str) -> Decimal:
    """``1500m`` is 1.5; anything else than a quantity is the cluster's error."""
    # Longest suffix first: "1E" is an exabyte, "12e3" a number with an exponent.
    found = _FORM.fullmatch(text)
    if found is None:
        raise BackendError(f'"{text}" is not a quantity; expected such as 500m, 2 or 1Gi.')
    return Decimal(found[1]) * _SUFFIXES[found[2]]


def _whole(value: Decimal) -> int:
    if value >= LARGEST:
        return LARGEST
    return max(int(value.to_integral_value(ROUND_CEILING)), -LARGEST)


@lru_cache(maxsize=4096)
def millicores(text: str) -> int:
    return to_millicores(parse(text))


@lru_cache(maxsize=4096)
def mebibytes(text: str) -> int:
    return to_mebibytes(parse(text))


def to_millicores(cores: Decimal) -> int:
    return _whole(cores * 1000)


def to_mebibytes(octets: Decimal) -> int:
    return _whole(octets / 2**20)


def count(text: str) -> int:
    return _whole(parse(text))
