# SPDX-License-Identifier: Apache-2.0
"""Scheduling of many small clusters at once: the heads of all queues, round after round.

Pods that ask alike in one cluster form a *kind*. Scores are kept by kind and node: all of them
are computed once, and after a binding only those of the node that took the pod. Clusters are
ordered by the length of their queue, so that each round works on a prefix of the one before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pilothouse.sim import fit
from pilothouse.sim.state import I4, I8, State

FEW = 8  # clusters; with so few in a round, plain Python is faster than arrays


def choose(s: State, queue: I8, open_nodes: NDArray[np.bool_]) -> I8:
    """The node row for each pod of the queue, -1 where none fits.

    ``queue`` holds slots by cluster and then in queue order.
    """
    chosen: I8 = np.full(len(queue), -1)
    member, kind = _kinds(s, queue)
    board = _Board(s, queue[member], open_nodes)
    # Room only shrinks within a tick: what fits nowhere now need not be tried.
    hope = np.flatnonzero((board.scores.max(axis=1) >= 0)[kind])
    if len(hope):
        order, clusters, sizes = _arrange(s.home[queue[hope]], s.batch)
        order = hope[order]
        kind = board.arrange(clusters, s.batch)[kind[order]]
        game = _Game(s, board, queue[order], kind, clusters)
        game.play(sizes)
        chosen[order] = game.chosen
    return chosen


def place_in_group(group: I8) -> I8:
    """0, 1, 2 .. within each run of equal numbers; ``group`` is sorted."""
    return np.arange(len(group)) - np.searchsorted(group, group)


def _kinds(s: State, queue: I8) -> tuple[I8, I8]:
    """One member of each kind, and the kind of each pod."""
    work, every = s.work[queue], np.arange(len(queue))
    if (s.memory_request[queue] != s.w_memory_request[work]).any():
        return every, every  # somebody resized a waiting pod: each is a kind of its own
    member = np.full(s.nobody_work, -1)
    member[work] = every
    rows = np.flatnonzero(member >= 0)
    number = np.empty(s.nobody_work, dtype=np.int64)
    number[rows] = every[: len(rows)]
    return member[rows], number[work]


def _arrange(cluster: I8, batch: int) -> tuple[I8, I8, list[int]]:
    """Pods by round, clusters by falling length of their queues, and pods in each round."""
    length = np.bincount(cluster, minlength=batch)
    clusters = np.argsort(-length, kind="stable")[: np.count_nonzero(length)]
    place = np.empty(batch, dtype=np.int64)
    place[clusters] = np.arange(len(clusters))
    turn = place_in_group(cluster)
    order = np.argsort(turn * batch + place[cluster])
    return order, clusters, np.bincount(turn).tolist()


class _Board:
    """Scores by kind and node, kept true while room is taken."""

    def __init__(self, s: State, pods: I8, open_nodes: NDArray[np.bool_]) -> None:
        room = fit.room_of(s, open_nodes).reshape(-1, s.batch, s.nodes)
        self._room: I4 = room.swapaxes(0, 1)  # (clusters, columns, nodes)
        self._owner = s.home[pods]  # of each kind: its cluster's row in the room
        self.both: I4 = np.stack((s.cpu_request[pods], s.memory_request[pods]), axis=1)
        self._zone = s.w_zone[s.work[pods]]
        self.scores = fit.score(self.both, self._zone, self._room[self._owner])

    def arrange(self, clusters: I8, batch: int) -> I8:
        """Put these clusters first, in this order; returns the new number of each kind."""
        place = np.full(batch, batch)
        place[clusters] = np.arange(len(clusters))
        owner = place[self._owner]
        order = np.argsort(owner, kind="stable")
        self._room, self._owner = self._room[clusters], owner[order]
        self.both, self._zone = self.both[order], self._zone[order]
        self.scores = self.scores[order]
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        return number

    def kinds_of(self, clusters: list[int]) -> list[int]:
        """How many kinds the first so many clusters have."""
        kinds: list[int] = np.searchsorted(self._owner, clusters).tolist()
        return kinds

    def take(self, node: I8, both: I4, kinds: int) -> None:
        """Room of one node in each of the first clusters is taken; rescore the first kinds."""
        self._room[np.arange(len(node)), 2:4, node] += both
        owner = self._owner[:kinds]
        at = node[owner]
        cells = self._room[owner, :, at][:, :, None]
        fresh = fit.score(self.both[:kinds], self._zone[:kinds], cells)
        self.scores[np.arange(kinds), at] = fresh[:, 0]

    def take_one(self, cluster: int, node: int, both: list[int], kinds: range) -> None:
        """Room of one node is taken; rescore the kinds of its cluster."""
        cells = self._room[cluster, :, node].tolist()
        cells[2] += both[0]
        cells[3] += both[1]
        self._room[cluster, 2:4, node] = cells[2:4]
        asks, zones = self.both[kinds.start : kinds.stop], self._zone[kinds.start : kinds.stop]
        for kind, (cpu, memory), zone in zip(kinds, asks.tolist(), zones.tolist(), strict=True):
            self.scores[kind, node] = fit.score_one(cpu, memory, zone, cells)


class _Game:
    """Pods that hope for a node, by round and cluster."""

    def __init__(self, s: State, board: _Board, slots: I8, kind: I8, clusters: I8) -> None:
        self._board, self._kind, self._nodes = board, kind, s.nodes
        self._first_row = clusters * s.nodes
        self._ties = fit.tie_word(s.key[slots][:, None], np.arange(s.nodes))
        self._both = board.both[kind]
        self._avoid = s.avoid[slots]
        self._picky = bool((self._avoid >= 0).any())
        self.chosen: I8 = np.full(len(slots), -1)

    def play(self, sizes: list[int]) -> None:
        """Round after round, one pod of each cluster takes its best node."""
        end, later = 0, [*self._board.kinds_of(sizes)[1:], 0]
        for turn, size in enumerate(sizes):
            if size <= FEW:
                self._play_out(end, sizes[turn:])
                break
            self._round(slice(end, end + size), later[turn])
            end += size

    def _round(self, span: slice, kinds: int) -> None:
        first_row = self._first_row[: span.stop - span.start]
        value = self._board.scores[self._kind[span]]
        value += self._ties[span]
        if self._picky:
            rows = first_row[:, None] + np.arange(self._nodes)
            value[rows == self._avoid[span, None]] = fit.MISFIT
        best = value.argmax(axis=1)
        fits = value[np.arange(len(best)), best] >= 0
        self.chosen[span] = np.where(fits, first_row + best, -1)
        if kinds:
            self._board.take(best, self._both[span] * fits[:, None], kinds)

    def _play_out(self, begin: int, sizes: list[int]) -> None:
        """The last rounds pod by pod: for a few clusters plain numbers beat arrays."""
        bounds = self._board.kinds_of(list(range(sizes[0] + 1)))
        places = [place for size in sizes for place in range(size)]
        both, kind = self._both[begin:].tolist(), self._kind[begin:].tolist()
        first_row, avoid = self._first_row.tolist(), self._avoid[begin:].tolist()
        for i, place in enumerate(places):
            value = self._board.scores[kind[i]] + self._ties[begin + i]
            if avoid[i] >= 0:
                value[avoid[i] - first_row[place]] = fit.MISFIT
            best = int(value.argmax())
            if value[best] >= 0:
                self.chosen[begin + i] = first_row[place] + best
                kinds = range(bounds[place], bounds[place + 1])
                self._board.take_one(place, best, both[i], kinds)
