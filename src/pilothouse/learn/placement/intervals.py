# SPDX-License-Identifier: Apache-2.0
"""How far a mean of few values may be off: Student's t, without SciPy."""

from __future__ import annotations

# Two-sided 95 %, by degrees of freedom from 1 on.
_T95 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
_NORMAL95 = 1.959964


def t95(count: int) -> float:
    """By how many standard errors the mean of ``count`` values may be off, 95 % of the time.

    1.96 holds for many; two values give 12.7, which is hardly a bound, and one gives none.
    """
    if count < 2:
        return float("nan")
    freedom = count - 1
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = _NORMAL95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
