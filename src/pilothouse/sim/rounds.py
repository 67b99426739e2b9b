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
from pilothouse.sim.state import I8, State


def choose(s: State, queue: I8, open_nodes: NDArray[np.bool_]) -> I8:
    """The node row for each pod of the queue, -1 where none fits.

    ``queue`` holds slots by cluster and then in queue order.
    """
    chosen: I8 = np.full(len(queue), -1)
    member, kind = _kinds(s, queue)
    room = fit.room_of(s, open_nodes).reshape(-1, s.batch, s.nodes).swapaxes(0, 1)
    first = queue[member]
    both = np.stack((s.cpu_request[first], s.memory_request[first]), axis=1)
    zone, home = s.w_zone[s.work[first]], s.home[first]
    table = fit.score(both, zone, room[home])
    # Room only shrinks within a tick: what fits nowhere now need not be tried.
    hope = np.flatnonzero((table.max(axis=1) >= 0)[kind])
    if not len(hope):
        return chosen
    order, clusters, sizes = _rounds(s.home[queue[hope]], s.batch)
    order = hope[order]
    slots, kind = queue[order], kind[order]
    place = np.full(s.batch, s.batch)
    place[clusters] = np.arange(len(clusters))
    owner = place[home]  # of each kind: where its cluster stands
    by_owner = np.argsort(owner, kind="stable")
    number = np.empty_like(by_owner)
    number[by_owner] = np.arange(len(by_owner))
    kind, owner, both, zone = number[kind], owner[by_owner], both[by_owner], zone[by_owner]
    table, room = table[by_owner], room[clusters]
    last_kind = np.searchsorted(owner, sizes).tolist()  # kinds of the clusters in each round
    ties = fit.tie_word(s.key[slots][:, None], np.arange(s.nodes))
    avoid = s.avoid[slots]
    picky = bool((avoid >= 0).any())
    steps = np.arange(max(len(clusters), len(owner)))
    asked = both[kind]
    best_of = np.empty(len(slots), dtype=np.int64)
    begin = 0
    for turn, size in enumerate(sizes):
        span = slice(begin, begin + size)
        value = table[kind[span]]
        value += ties[span]
        if picky:
            _keep_off(value, avoid[span] - clusters[:size] * s.nodes)
        best = value.argmax(axis=1)
        found = value[steps[:size], best] >= 0
        best_of[span] = np.where(found, clusters[:size] * s.nodes + best, -1)
        begin += size
        if turn + 1 < len(sizes):
            room[steps[:size], 2:4, best] += asked[span] * found[:, None]
            kinds = last_kind[turn + 1]
            at = best[owner[:kinds]]
            cells = room[owner[:kinds], :, at][:, :, None]
            table[steps[:kinds], at] = fit.score(both[:kinds], zone[:kinds], cells)[:, 0]
    chosen[order] = best_of
    return chosen
