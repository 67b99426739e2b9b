# SPDX-License-Identifier: Apache-2.0
"""Named parts that a reward may be made of; weights come from whoever mixes them.

Most are *regrets*: zero for the best choice there was and negative otherwise, so that a value
learned from them is near zero for a good policy, however many nodes there are. That is what lets
a network trained on few nodes rank thousands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pilothouse.learn.placement.placed import Array, Placed, Resource

Component = Callable[[Placed, Resource], Array]


def new_node(p: Placed, resource: Resource) -> Array:
    """-1 when the choice wakes an unused node although a used one was feasible."""
    used = p.feasible & (p.counted > 0)
    return -(p.at_choice(p.counted == 0) * used.any(axis=-1))


def snug(p: Placed, resource: Resource) -> Array:
    """Among used nodes, how much fuller another would have become (best fit), up to 1."""
    after = p.load_anywhere(resource)
    used = p.feasible & (p.counted > 0)
    best = p.most(after, used)
    chose_used = p.at_choice(p.counted > 0) > 0
    return p.xp.where(chose_used, p.at_choice(after) - best, 0.0)


def roomy(p: Placed, resource: Resource) -> Array:
    """On waking a node: by which share another could have taken more pods like this one."""
    room = p.room_for
    fresh = p.feasible & (p.counted == 0)
    best = p.xp.maximum(p.most(room, fresh), 1.0)
    woke = p.at_choice(p.counted == 0) > 0
    return p.xp.where(woke, p.at_choice(room) / best - 1.0, 0.0)


def level(p: Placed, resource: Resource) -> Array:
    """How much less loaded another node would have become, as a load share."""
    after = p.load_anywhere(resource)
    return p.least(after, p.feasible) - p.at_choice(after)


def lowest(p: Placed, resource: Resource) -> Array:
    """How much less loaded another node was before, as a load share."""
    before = p.load_before(resource)
    return p.least(before, p.feasible) - p.at_choice(before)


def spread(p: Placed, resource: Resource) -> Array:
    """Minus the difference between the most and the least loaded node, after the placement."""
    after = p.load_after(resource)
    return p.least(after, p.exists) - p.most(after, p.exists)


def hard_limit(p: Placed, resource: Resource) -> Array:
    """-1 when the choice breaks the hard limit although a feasible node keeps it."""
    return _broken(p, p.hard_ms)


def soft_limit(p: Placed, resource: Resource) -> Array:
    """-1 when the choice breaks the soft limit although a feasible node keeps it."""
    return _broken(p, p.soft_ms)


def unused(p: Placed, resource: Resource) -> Array:
    """Share of nodes without a pod that counts, after the placement."""
    idle = p.exists & (p.counted_after == 0)
    return idle.sum(axis=-1) / p.xp.maximum(p.exists.sum(axis=-1), 1)


def idle_power(p: Placed, resource: Resource) -> Array:
    """On waking a node: minus its idle power as a share of its most."""
    return -p.at_choice(p.xp.where(p.counted == 0, p.idle_permille, 0)) / 1000.0


def near(component: Component) -> Component:
    """The same regret among the nodes that keep the pod's limits as well as any can.

    Compared with all nodes, the best near one would pay for a roomier one that is too far: a regret
    that no choice avoids, and the more nodes there are, the larger it grows. Who chooses outside
    pays for the limit and not for this.
    """

    def among(p: Placed, resource: Resource) -> Array:
        keepers = p.keepers
        value = component(replace(p, feasible=keepers), resource)
        return p.xp.where(p.at_choice(keepers) > 0, value, 0.0)

    return among


def _broken(p: Placed, limit_ms: Array) -> Array:
    inside = p.within(limit_ms)
    possible = (inside & p.feasible).any(axis=-1)
    return -(p.at_choice(~inside) * possible)


COMPONENTS: dict[str, Component] = {
    "new-node": new_node,
    "snug": snug,
    "roomy": roomy,
    "level": level,
    "lowest": lowest,
    "spread": spread,
    "hard-limit": hard_limit,
    "soft-limit": soft_limit,
    "unused": unused,
    "idle-power": idle_power,
    "near-new-node": near(new_node),
    "near-snug": near(snug),
    "near-roomy": near(roomy),
}
