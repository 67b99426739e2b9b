# SPDX-License-Identifier: Apache-2.0
"""Randomness without state: every draw is a hash of (seed, stream, entity, tick).

Nothing is consumed, so nobody's draw depends on what others drew before: two arms of a comparison
see the same arrivals and faults whatever their actions were, and a batch sees what single runs
see. All arithmetic is on unsigned 32-bit integers that wrap around, so a plain Python peer
reproduces every draw with ``& 0xFFFFFFFF``:

    mix(x):   x ^= x >> 16; x *= 0x85EBCA6B; x ^= x >> 13; x *= 0xC2B2AE35; x ^= x >> 16
    key(seed, stream, entity) = mix(mix(mix(seed + 0x9E3779B9) + stream * 0x9E3779B9) + entity)
    draw(key, tick) = mix(key + tick * 0x9E3779B9)

A draw is an integer in [0, 2**32). The array functions come first, their scalar twins after.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

GOLDEN = 0x9E3779B9
FIRST = 0x85EBCA6B
SECOND = 0xC2B2AE35
MASK = 0xFFFFFFFF


class Stream(IntEnum):
    """What a draw is for; two streams never share a draw."""

    POD = 1
    LOAD = 2
    BURST = 3
    ARRIVAL = 4
    NODE = 5
    WORLD = 6
    DECK = 7
    TIE = 8


def mix_into(words: Words, scratch: Words) -> None:
    """Scramble in place; ``scratch`` has the same shape and is overwritten."""
    mix_top_into(words, scratch)
    np.right_shift(words, np.uint32(16), out=scratch)
    np.bitwise_xor(words, scratch, out=words)


def mix_top_into(words: Words, scratch: Words) -> None:
    """Scramble in place, right in the upper 16 bits only: who needs no more saves two passes."""
    for shift, factor in ((16, FIRST), (13, SECOND)):
        np.right_shift(words, np.uint32(shift), out=scratch)
        np.bitwise_xor(words, scratch, out=words)
        np.multiply(words, np.uint32(factor), out=words)


def mix(words: Words) -> Words:
    """Scramble a copy."""
    out = words.copy()
    mix_into(out, np.empty_like(out))
    return out


def tick_word(tick: int) -> np.uint32:
    """What is added to a key to reach a tick."""
    return np.uint32(tick * GOLDEN & MASK)


def keys(seed: Words, stream: int, entity: NDArray[np.integer]) -> Words:
    """Keys of many entities; seeds and entities broadcast."""
    base = mix(np.atleast_1d(seed).astype(np.uint32) + np.uint32(GOLDEN))
    base = mix(base + np.uint32(stream * GOLDEN & MASK))
    return mix(base + entity.astype(np.uint32))


def draws(key: Words, tick: int) -> Words:
    """One draw per key at this tick."""
    return mix(key + tick_word(tick))


def mix_one(x: int) -> int:
    """The scalar twin of ``mix``."""
    x ^= x >> 16
    x = x * FIRST & MASK
    x ^= x >> 13
    x = x * SECOND & MASK
    return x ^ x >> 16


def key_one(seed: int, stream: int, entity: int) -> int:
    """The scalar twin of ``keys``."""
    base = mix_one(seed + GOLDEN & MASK)
    base = mix_one(base + stream * GOLDEN & MASK)
    return mix_one(base + entity & MASK)


def draw_one(key: int, tick: int) -> int:
    """The scalar twin of ``draws``."""
    return mix_one(key + tick * GOLDEN & MASK)


class Dice:
    """A sequence of draws for building a world: one key, a counter for the tick."""

    def __init__(self, seed: int, stream: int, entity: int = 0) -> None:
        self._key = key_one(seed, stream, entity)
        self._count = 0

    def word(self) -> int:
        self._count += 1
        return draw_one(self._key, self._count)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], both included."""
        return low + self.word() * (high - low + 1) // (MASK + 1)

    def shuffled(self, items: list[int]) -> list[int]:
        """A copy in random order (Fisher and Yates)."""
        out = list(items)
        for last in range(len(out) - 1, 0, -1):
            other = self.between(0, last)
            out[last], out[other] = out[other], out[last]
        return out
