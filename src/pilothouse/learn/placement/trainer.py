# SPDX-License-Identifier: Apache-2.0
"""Double DQN for placement, top to bottom: network, replay, update, stages.

A few clusters are played inside the compiled program, one update follows every so many placements.
What is easy to get wrong and is right here: the state that is bootstrapped from is the one after
departures, with the *next* pod and *its* mask, and it is stored; the best next action is sought
among feasible nodes only; a next pod that fits nowhere is worth 0; the end of a course is a time
limit, so it bootstraps; masks are ``where`` with the smallest finite number. Clusters grow from
stage to stage, each with one padded shape. Several seeds train side by side in one program.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pilothouse.learn.placement import checkpoint, world
from pilothouse.learn.placement.course import Courses, draw
from pilothouse.learn.placement.placed import beside_cpu
from pilothouse.learn.placement.presets import PRESETS, THESIS, Settings
from pilothouse.learn.placement.rewards import Reward, worth
from pilothouse.learn.placement.world import Envs, Sight
from pilothouse.policy import Network
from pilothouse.policy.features import FEATURES, NODE_FEATURES, SCALING
from pilothouse.policy.network import Layer

__all__ = ["PRESETS", "THESIS", "Progress", "Settings", "Trainer", "Transition", "Weights"]

Array = jax.Array
Weights = dict[str, list[tuple[Array, Array]]]  # "encoder" and "head": (weight, bias) by layer

LEAST = float(np.finfo(np.float32).min)
SCALE = np.array([1.0 / SCALING.get(name, 1.0) for name in FEATURES], np.float32)
# XLA's own choice, 3, compiles for longer and runs no faster.
OPTIMIZING: dict[str, str | bool] = {"xla_backend_optimization_level": "1"}


# ---- the network: the same function as pilothouse.policy.Network ----


def initial(key: Array, settings: Settings) -> Weights:
    """He's initialization, whose last layer starts small, so that first values are near zero; or
    uniform, by the number of inputs alone, biases too.
    """
    width = settings.encoder[-1]
    sizes = {
        "encoder": (len(FEATURES), *settings.encoder),
        "head": (3 * width, *settings.head, 1),
    }
    weights: Weights = {}
    for part, widths in sizes.items():
        weights[part] = []
        for into, out in pairwise(widths):
            key, own = jax.random.split(key)
            if settings.initialization == "he":
                spread = (2.0 / into) ** 0.5 * (0.1 if out == 1 else 1.0)
                layer = spread * jax.random.normal(own, (into, out)), jnp.zeros(out)
            else:
                drawn = jax.random.uniform(own, (into + 1, out), minval=-1.0) * into**-0.5
                layer = drawn[:-1], drawn[-1]
            weights[part].append(layer)
    return weights


def q_values(weights: Weights, sight: Sight) -> Array:
    """(batch, nodes); what all nodes of a cluster share is multiplied once, not once per node."""
    (first, bias), *others = weights["encoder"]
    many = len(NODE_FEATURES)
    shared = (sight.pod * SCALE[many:]) @ first[many:] + bias
    x = jax.nn.relu((sight.nodes * SCALE[:many]) @ first[:many] + shared[:, None, :])
    for weight, bias in others:
        x = jax.nn.relu(x @ weight + bias)
    kept = x * sight.valid[..., None]  # encodings are never negative: zero is neutral
    count = jnp.maximum(sight.valid.sum(axis=-1, keepdims=True), 1)
    pooled = jnp.concatenate([kept.sum(axis=-2) / count, kept.max(axis=-2)], axis=-1)
    (first, bias), *others = weights["head"]
    width = x.shape[-1]
    x = x @ first[:width] + (pooled @ first[width:] + bias)[:, None, :]
    for weight, bias in others:
        x = jax.nn.relu(x) @ weight + bias
    return x[..., 0]


def best(q: Array, feasible: Array) -> Array:
    """The feasible node of the highest value; any, where none is feasible."""
    return jnp.argmax(jnp.where(feasible, q, LEAST), axis=-1)


# ---- replay ----


class Transition(NamedTuple):
    """What is stored, by row."""

    sight: Sight
    choice: Array
    reward: Array
    ended: Array  # by the reward's verdict; the end of a course is no end
    counts: Array  # false where nothing could be chosen
    after: Sight  # after departures, with the next pod and its mask


class Carry(NamedTuple):
    """Everything that changes while training; what a checkpoint holds."""

    key: Array
    weights: Weights
    target: Weights
    optimizer: optax.OptState
    envs: Envs
    replay: Transition
    step: Array
    stage_step: Array  # steps in this stage
    running: Array  # (envs,), return of the episode in play
    finished: Array  # sum of returns, episodes


def _act(
    settings: Settings, reward: Reward, courses: dict[str, Array], carry: Carry
) -> tuple[Carry, Array]:
    """One placement in every cluster, into the replay."""
    key, explore, random, course_key = jax.random.split(carry.key, 4)
    sight = world.see(courses, carry.envs, beside_cpu(reward.resource))
    q = q_values(carry.weights, sight)
    wander = jax.random.uniform(explore, (settings.envs,)) < _epsilon(settings, carry.step)
    lots = jax.random.uniform(random, q.shape)
    choice = best(jnp.where(wander[:, None], lots, q), sight.feasible)
    envs, placed = world.place(courses, carry.envs, sight, choice)
    value, ended = worth(reward, placed)
    row = Transition(
        sight=sight,
        choice=choice,
        reward=value.astype(jnp.float32),
        ended=ended.astype(jnp.bool_),
        counts=sight.feasible.any(axis=1),
        after=world.see(courses, envs, beside_cpu(reward.resource)),
    )
    at = carry.stage_step * settings.envs % settings.buffer
    replay = jax.tree.map(
        lambda store, new: jax.lax.dynamic_update_slice_in_dim(store, new, at, 0), carry.replay, row
    )
    over = ended | (envs.step >= courses["pod_cpu"].shape[1] - 1)
    fresh = jax.random.randint(course_key, (settings.envs,), 0, courses["cpu"].shape[0])
    running = carry.running + row.reward
    done = jnp.stack([jnp.where(over, running, 0).sum(), over.sum()])
    carry = carry._replace(
        key=key,
        envs=world.restart(courses, envs, over, fresh),
        replay=replay,
        step=carry.step + 1,
        stage_step=carry.stage_step + 1,
        running=jnp.where(over, 0.0, running),
        finished=carry.finished + done,
    )
    return carry, jnp.where(sight.feasible, q, LEAST).max(axis=1).mean()


def _epsilon(settings: Settings, step: Array) -> Array:
    share = jnp.clip(step / (settings.exploration_fraction * settings.steps), 0.0, 1.0)
    return settings.epsilon_start + share * (settings.epsilon_end - settings.epsilon_start)


# ---- the update ----


class Mind(NamedTuple):
    """What an update changes; small, so that leaving it as it was costs nothing."""

    key: Array
    weights: Weights
    optimizer: optax.OptState


def _update(settings: Settings, carry: Carry) -> tuple[Carry, Array]:
    """One step of double DQN on a batch of the replay."""
    mind, td_loss = _improved(settings, carry, Mind(carry.key, carry.weights, carry.optimizer))
    return carry._replace(**mind._asdict()), td_loss


def _improved(settings: Settings, carry: Carry, mind: Mind) -> tuple[Mind, Array]:
    """The same, of the mind alone; the carry's replay and target are only looked at."""
    key, own = jax.random.split(mind.key)
    filled = jnp.minimum(carry.stage_step * settings.envs, settings.buffer)
    index = jax.random.randint(own, (settings.batch,), 0, filled)
    batch = jax.tree.map(lambda store: store[index], carry.replay)
    goal = wanted(mind.weights, carry.target, batch, settings.gamma)

    def loss(weights: Weights) -> Array:
        error = _taken(q_values(weights, batch.sight), batch.choice) - goal
        total: Array = (optax.losses.huber_loss(error) * batch.counts).mean()
        return total

    td_loss, gradient = jax.value_and_grad(loss)(mind.weights)
    change, optimizer = _optimizer(settings).update(gradient, mind.optimizer, mind.weights)
    return Mind(key, optax.apply_updates(mind.weights, change), optimizer), td_loss


def wanted(weights: Weights, target: Weights, batch: Transition, gamma: float) -> Array:
    """What the chosen values should be: the learner picks the next node, the target values it."""
    feasible = batch.after.feasible
    choice = best(q_values(weights, batch.after), feasible)
    value = _taken(q_values(target, batch.after), choice)
    future = jnp.where(feasible.any(axis=1) & ~batch.ended, value, 0.0)
    return batch.reward + gamma * future


def _taken(q: Array, choice: Array) -> Array:
    taken: Array = jnp.take_along_axis(q, choice[:, None], axis=1)[:, 0]
    return taken


def _optimizer(settings: Settings) -> optax.GradientTransformation:
    updates = max(settings.updates * settings.steps // settings.train_every, 1)
    rate = optax.linear_schedule(settings.learning_rate, settings.learning_rate_end, updates)
    return optax.adam(rate)


def _iterate(
    settings: Settings, reward: Reward, courses: dict[str, Array], carry: Carry, _: None
) -> tuple[Carry, tuple[Array, Array]]:
    """The steps between two trainings, then one training."""
    act = partial(_act, settings, reward, courses)
    carry, q = jax.lax.scan(lambda c, _: act(c), carry, length=settings.train_every)
    learns = carry.stage_step >= min(settings.learning_starts, settings.buffer // settings.envs)

    def learn(mind: Mind) -> tuple[Mind, Array]:
        improve = partial(_improved, settings, carry)
        return jax.lax.scan(lambda m, _: improve(m), mind, length=settings.updates)

    def wait(mind: Mind) -> tuple[Mind, Array]:
        return mind, jnp.zeros(settings.updates)

    # The replay stays outside: with several seeds both branches run, and one is thrown away.
    mind = Mind(carry.key, carry.weights, carry.optimizer)
    mind, loss = jax.lax.cond(learns, learn, wait, mind)
    carry = carry._replace(**mind._asdict())
    due = carry.step % settings.target_every < settings.train_every
    target = jax.tree.map(lambda new, old: jnp.where(due, new, old), carry.weights, carry.target)
    return carry._replace(target=target), (q.mean(), loss.mean())


# ---- stages, seeds and checkpoints ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a chunk of training showed; means over the chunk, one number per seed."""

    step: int
    td_loss: tuple[float, ...]
    q_values: tuple[float, ...]
    episodic_return: tuple[float, ...]
    epsilon: float
    steps_per_second: float


class Trainer:
    """Trains one policy per seed, all in one program; resumable to identical weights."""

    CHUNKS = 8  # of a stage; progress is told and a checkpoint possible after each

    def __init__(self, settings: Settings, reward: Reward, seeds: Sequence[int]) -> None:
        self.settings = settings
        self.reward = reward
        self.seeds = tuple(seeds)
        self.compile_seconds = 0.0
        self._stage = -1
        self._chunk = 0
        first = jax.vmap(partial(_first_carry, settings))
        self._carry: Carry = self._once(first, jnp.array(self.seeds))
        self._courses: dict[str, Array] = {}

    def run(self) -> Iterator[Progress]:
        """Train to the end from where this stands, telling of every chunk."""
        if self._stage < 0:
            self._enter(0)
        while self._stage < len(self.settings.stages):
            program = self._program()
            while self._chunk < self.CHUNKS:
                yield self._advance(program)
            if self._stage + 1 == len(self.settings.stages):
                return
            self._enter(self._stage + 1)

    @property
    def total_steps(self) -> int:
        """What all stages come to; rounded up to whole chunks."""
        unit = self.settings.train_every * self.CHUNKS
        return unit * sum(self._length(k) for k in range(len(self.settings.stages)))

    def weights(self, index: int = 0) -> dict[str, np.ndarray]:
        """Tensors of one seed's policy, by the artefact's names."""
        own = jax.tree.map(lambda x: np.asarray(x[index]), self._carry.weights)
        return {
            f"{part}.{k}.{kind}": array
            for part, layers in own.items()
            for k, layer in enumerate(layers)
            for kind, array in zip(("weight", "bias"), layer, strict=True)
        }

    def network(self, index: int = 0) -> Network:
        """One seed's policy as it is served."""
        tensors = self.weights(index)

        def layers(part: str, many: int) -> tuple[Layer, ...]:
            return tuple(
                Layer(tensors[f"{part}.{k}.weight"], tensors[f"{part}.{k}.bias"])
                for k in range(many)
            )

        encoder = layers("encoder", len(self.settings.encoder))
        return Network(
            encoder=encoder,
            head=layers("head", len(self.settings.head) + 1),
            scale=SCALE,
            beside_cpu=beside_cpu(self.reward.resource),
        )

    def save(self, path: Path) -> None:
        """Everything needed to go on, as one file of plain arrays."""
        head = {"stage": self._stage, "chunk": self._chunk, "identity": self._identity()}
        checkpoint.write(path, head, jax.tree.leaves(self._carry))

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint of the same settings, reward and seeds."""
        head, leaves = checkpoint.read(path, self._identity())
        self._enter(int(head["stage"]))
        self._chunk = int(head["chunk"])
        shape: Any = jax.tree.structure(self._carry)
        self._carry = jax.tree.unflatten(shape, [jnp.asarray(leaf) for leaf in leaves])

    def _identity(self) -> dict[str, Any]:
        told = {"settings": asdict(self.settings), "reward": self.reward.card()}
        plain: dict[str, Any] = json.loads(json.dumps(told | {"seeds": self.seeds}))
        return plain

    def _length(self, stage: int) -> int:
        """Iterations in a chunk of this stage."""
        s = self.settings
        unit = s.train_every * self.CHUNKS
        return max(round(s.steps * s.stage_shares[stage] / unit), 1)

    def _enter(self, stage: int) -> None:
        """Draw this stage's courses, start its clusters and empty the replay."""
        s = self.settings
        drawn = [self._drawn(stage, seed) for seed in self.seeds]
        each = [world.load(courses) for courses in drawn]
        self._courses = {k: jnp.asarray(np.stack([c[k] for c in each])) for k in each[0]}
        carry = self._once(jax.vmap(partial(_start_stage, s)), self._courses, self._carry)
        self._carry = jax.tree.map(jnp.copy, carry)  # nothing twice: the program takes it over
        self._stage, self._chunk = stage, 0

    def _drawn(self, stage: int, seed: int) -> Courses:
        """The courses one seed is trained on in a stage."""
        s, nodes = self.settings, self.settings.stages[stage]
        family = replace(
            s.family,
            nodes=(min(s.fewest_nodes, nodes), nodes),
            steps=s.course_steps_per_node * nodes,
        )
        return draw(family, seed=1_000_003 * seed + stage, count=s.courses)

    def _once(self, function: Any, *arguments: Any) -> Any:
        """What this makes of its arguments; what compiling took is kept apart."""
        began = time.perf_counter()
        program = _compile(function, *arguments)
        self.compile_seconds += time.perf_counter() - began
        return program(*arguments)

    def _program(self) -> Any:
        """This stage's chunk, compiled; what compiling took is kept apart."""
        leaves, shape = jax.tree.flatten((self._courses, self._carry))
        kinds = tuple((x.shape, str(x.dtype)) for x in leaves)
        began = time.perf_counter()
        length, many = self._length(self._stage), len(self.seeds)
        program = _compiled(self.settings, self.reward, length, many, shape, kinds)
        self.compile_seconds += time.perf_counter() - began
        return program

    def _advance(self, program: Any) -> Progress:
        began = time.perf_counter()
        before = int(self._carry.step[0])
        self._carry, (q, loss) = program(self._courses, self._carry)
        finished = np.asarray(self._carry.finished)
        seconds = time.perf_counter() - began
        self._carry = self._carry._replace(finished=jnp.zeros_like(self._carry.finished))
        self._chunk += 1
        step = int(self._carry.step[0])
        return Progress(
            step=step,
            td_loss=_floats(loss.mean(axis=1)),
            q_values=_floats(q.mean(axis=1)),
            episodic_return=_floats(finished[:, 0] / np.maximum(finished[:, 1], 1)),
            epsilon=float(_epsilon(self.settings, jnp.asarray(step))),
            steps_per_second=(step - before) / max(seconds, 1e-9),
        )


@lru_cache(maxsize=8)
def _compiled(
    settings: Settings, reward: Reward, length: int, many: int, shape: Any, kinds: tuple[Any, ...]
) -> Any:
    """The program of one chunk for arguments of these shapes; compiled once per process."""

    def chunk(courses: dict[str, Array], carry: Carry) -> tuple[Carry, tuple[Array, Array]]:
        body = partial(_iterate, settings, reward, courses)
        return jax.lax.scan(body, carry, length=length)

    def alone(courses: dict[str, Array], carry: Carry) -> tuple[Carry, tuple[Array, Array]]:
        one = jax.tree.map(lambda x: x[0], (courses, carry))
        done: tuple[Carry, tuple[Array, Array]] = jax.tree.map(lambda x: x[None], chunk(*one))
        return done

    together = alone if many == 1 else jax.vmap(chunk)
    abstract: Any = jax.ShapeDtypeStruct
    arguments = jax.tree.unflatten(shape, [abstract(s, d) for s, d in kinds])
    return _compile(together, *arguments, donated=1)


def _compile(function: Any, *arguments: Any, donated: int | tuple[()] = ()) -> Any:
    lowered = jax.jit(function, donate_argnums=donated).lower(*arguments)
    return lowered.compile(compiler_options=OPTIMIZING)


def _first_carry(settings: Settings, seed: Array) -> Carry:
    """Fresh weights; clusters and replay come with the first stage."""
    key, own = jax.random.split(jax.random.PRNGKey(seed))
    weights = initial(own, settings)
    nothing: Any = jnp.zeros(0)
    return Carry(
        key=key,
        weights=weights,
        target=weights,
        optimizer=_optimizer(settings).init(weights),
        envs=Envs(*[nothing] * len(Envs._fields)),
        replay=Transition(*[nothing] * 6),
        step=jnp.zeros((), jnp.int32),
        stage_step=jnp.zeros((), jnp.int32),
        running=jnp.zeros(settings.envs),
        finished=jnp.zeros(2),
    )


def _start_stage(settings: Settings, courses: dict[str, Array], carry: Carry) -> Carry:
    key, own = jax.random.split(carry.key)
    course = jax.random.randint(own, (settings.envs,), 0, courses["cpu"].shape[0])
    envs = world.start(courses, course)
    sight = world.see(courses, envs)

    def room(x: Array) -> Array:
        return jnp.zeros((settings.buffer, *x.shape[1:]), x.dtype)

    stored = jax.tree.map(room, sight)
    flag = jnp.zeros(settings.buffer, jnp.bool_)
    replay = Transition(
        sight=stored,
        choice=jnp.zeros(settings.buffer, jnp.int32),
        reward=jnp.zeros(settings.buffer),
        ended=flag,
        counts=flag,
        after=stored,
    )
    return carry._replace(
        key=key,
        envs=envs,
        replay=replay,
        target=carry.weights,
        stage_step=jnp.zeros((), jnp.int32),
        running=jnp.zeros(settings.envs),
    )


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(x) for x in np.asarray(values))


# What ``learner`` builds on, where placements come one at a time instead of from compiled worlds.
first_carry, update, epsilon_at, optimizer_of = _first_carry, _update, _epsilon, _optimizer
