# SPDX-License-Identifier: Apache-2.0
"""The trainer's double DQN on placements that come one at a time.

``trainer`` plays its own clusters inside one compiled program; a real cluster and a recorded past
cannot be compiled. Network, update, exploration and hyper-parameters are the trainer's own; only
the replay is filled from outside. A learner may begin with the weights of a policy.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pilothouse import __version__
from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement.rewards import Reward
from pilothouse.learn.placement.trainer import (
    SCALE,
    Carry,
    Settings,
    Transition,
    Weights,
    best,
    epsilon_at,
    first_carry,
    optimizer_of,
    q_values,
    update,
)
from pilothouse.learn.placement.world import Sight
from pilothouse.policy import Card, Network, Policy, Shape
from pilothouse.policy.features import (
    FEATURES,
    NODE_FEATURES,
    POD_FEATURES,
    BesideCPU,
    seeing,
)
from pilothouse.policy.network import Layer

Tensors = dict[str, NDArray[np.float32]]


def sight_of(
    nodes: NDArray[Any], pod: NDArray[Any], valid: NDArray[Any], *, width: int = 0
) -> Sight:
    """What is seen of one cluster, padded to ``width`` nodes."""
    extra = max(width - len(nodes), 0)
    return Sight(
        nodes=np.pad(np.asarray(nodes, np.float32), ((0, extra), (0, 0))),  # type: ignore[arg-type]
        pod=np.asarray(pod, np.float32),  # type: ignore[arg-type]
        valid=np.pad(np.asarray(valid, np.bool_), (0, extra)),  # type: ignore[arg-type]
    )


class Learner:
    """Weights in training, and the replay they are trained on."""

    def __init__(
        self,
        settings: Settings,
        *,
        width: int,
        seed: int,
        start: Policy | None = None,
        beside_cpu: BesideCPU = "memory",
    ) -> None:
        if start is not None and start.card.beside_cpu != beside_cpu:
            raise InvalidSetting(
                f"{start.version} sees {start.card.beside_cpu} beside CPU, but what it would be "
                f"trained on shows {beside_cpu}. Begin with another policy, or with none."
            )
        self.settings = settings if start is None else _shaped(settings, start.card.network)
        self.seed, self.beside_cpu = seed, beside_cpu
        self._dice = np.random.default_rng([seed, width])
        carry = first_carry(self.settings, jnp.asarray(seed))
        weights = carry.weights if start is None else weights_of(start.network)
        self._carry: Carry = carry._replace(
            weights=weights,
            target=weights,
            optimizer=optimizer_of(self.settings).init(weights),
            replay=_room(self.settings.buffer, width),
        )
        self._update = jax.jit(partial(update, self.settings))
        self._store = jax.jit(_store)
        self._best = jax.jit(lambda weights, sight: best(q_values(weights, sight), sight.feasible))

    @property
    def placements(self) -> int:
        """How many were taken so far."""
        return int(self._carry.step)

    @property
    def epsilon(self) -> float:
        return float(epsilon_at(self.settings, self._carry.step))

    def choose(self, sight: Sight) -> int:
        """The best feasible node so far, or any of them while exploring; 0 where none is."""
        feasible = np.flatnonzero(np.asarray(sight.feasible))
        if len(feasible) and self._dice.uniform() < self.epsilon:
            return int(self._dice.choice(feasible))
        batch: Sight = jax.tree.map(lambda x: jnp.asarray(x)[None], sight)
        return int(self._best(self._carry.weights, batch)[0])

    def take(self, row: Transition) -> None:
        """Store one placement; the oldest makes room."""
        replay = self._store(self._carry.replay, row, self.placements % self.settings.buffer)
        count = self._carry.step + 1
        self._carry = self._carry._replace(replay=replay, step=count, stage_step=count)

    def learn(self) -> float:
        """One update on a batch of what was stored; its loss."""
        self._carry, loss = self._update(self._carry)
        return float(loss)

    def retarget(self) -> None:
        """Bootstrap from the present weights from now on."""
        self._carry = self._carry._replace(target=self._carry.weights)

    def network(self) -> Network:
        """The weights as they are served."""
        layers = {
            part: tuple(Layer(np.asarray(weight), np.asarray(bias)) for weight, bias in own)
            for part, own in self._carry.weights.items()
        }
        return Network(
            encoder=layers["encoder"],
            head=layers["head"],
            scale=SCALE,
            beside_cpu=self.beside_cpu,
        )

    def tensors(self) -> Tensors:
        """The weights by the artefact's names."""
        return {
            f"{part}.{place}.{kind}": np.asarray(array)
            for part, own in self._carry.weights.items()
            for place, layer in enumerate(own)
            for kind, array in zip(("weight", "bias"), layer, strict=True)
        }

    def card(self, policy: str, reward: Reward, *, nodes: int, measured: dict[str, Any]) -> Card:
        """What the artefact says about these weights."""
        s = self.settings
        return Card(
            policy=policy,
            node_features=seeing(NODE_FEATURES, self.beside_cpu),
            pod_features=seeing(POD_FEATURES, self.beside_cpu),
            network=Shape(
                encoder=(len(FEATURES), *s.encoder), head=(3 * s.encoder[-1], *s.head, 1)
            ),
            reward=reward.card() | {"gamma": s.gamma},
            seed=self.seed,
            revision=__version__,
            trained_on_nodes_max=nodes,
            measured=measured,
        )


def weights_of(network: Network) -> Weights:
    """A served network's weights as the trainer holds them."""
    return {
        part: [(jnp.asarray(layer.weight), jnp.asarray(layer.bias)) for layer in layers]
        for part, layers in (("encoder", network.encoder), ("head", network.head))
    }


def _shaped(settings: Settings, shape: Shape) -> Settings:
    """The settings with another network's widths."""
    return replace(settings, encoder=shape.encoder[1:], head=shape.head[1:-1])


def _room(rows: int, width: int) -> Transition:
    """An empty replay of clusters of so many nodes."""
    sight = Sight(
        nodes=jnp.zeros((rows, width, len(NODE_FEATURES))),
        pod=jnp.zeros((rows, len(POD_FEATURES))),
        valid=jnp.zeros((rows, width), jnp.bool_),
    )
    flag = jnp.zeros(rows, jnp.bool_)
    choice = jnp.zeros(rows, jnp.int32)
    return Transition(
        sight=sight, choice=choice, reward=jnp.zeros(rows), ended=flag, counts=flag, after=sight
    )


def _store(replay: Transition, row: Transition, at: Any) -> Transition:
    stored: Transition = jax.tree.map(
        lambda store, new: store.at[at].set(jnp.asarray(new, store.dtype)), replay, row
    )
    return stored
