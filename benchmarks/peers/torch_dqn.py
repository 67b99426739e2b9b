# SPDX-License-Identifier: Apache-2.0
"""Double DQN as a PyTorch user writes it: a module, a replay of tensors, one training loop.

Run by whichever interpreter has PyTorch (Debian's ``python3-torch`` will do)::

    /usr/bin/python3 -m benchmarks.peers.torch_dqn JOB.npz OUT.npz --threads 1

The job holds the courses and the hyper-parameters; the answer holds the weights, the return and
the seconds spent in the whole, in the simulator alone and in the learner alone.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.numpy_clusters import Clusters


class SetNetwork(nn.Module):
    """Encode each node, pool mean and maximum, judge each node beside the pool."""

    def __init__(self, features, width, scale):
        super().__init__()
        self.register_buffer("scale", scale)
        self.encoder = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, nodes, exists):
        x = self.encoder(nodes * self.scale)
        kept = x * exists.unsqueeze(-1)
        mean = kept.sum(1, keepdim=True) / exists.sum(1).clamp(min=1).view(-1, 1, 1)
        pool = torch.cat([mean, kept.amax(1, keepdim=True)], dim=-1).expand(-1, x.shape[1], -1)
        return self.head(torch.cat([x, pool], dim=-1)).squeeze(-1)


class Replay:
    """A ring of transitions."""

    def __init__(self, size, nodes, features):
        self.size, self.at, self.filled = size, 0, 0
        self.seen, self.next_seen = (torch.zeros(size, nodes, features) for _ in range(2))
        self.exists, self.next_exists, self.next_mask = (
            torch.zeros(size, nodes, dtype=torch.bool) for _ in range(3)
        )
        self.choice = torch.zeros(size, dtype=torch.long)
        self.reward, self.counts = torch.zeros(size), torch.zeros(size)

    def add(self, **columns):
        many = len(columns["choice"])
        rows = slice(self.at, self.at + many)
        for name, column in columns.items():
            getattr(self, name)[rows] = torch.from_numpy(column)
        self.at = (self.at + many) % self.size
        self.filled = min(self.filled + many, self.size)

    def sample(self, batch):
        index = torch.randint(0, self.filled, (batch,))
        names = ("seen", "exists", "choice", "reward", "counts")
        after = ("next_seen", "next_exists", "next_mask")
        return tuple(getattr(self, name)[index] for name in names + after)


def learn(network, target, optimizer, replay, batch, gamma):
    seen, exists, choice, reward, counts, next_seen, next_exists, next_mask = replay.sample(batch)
    least = torch.finfo(torch.float32).min
    with torch.no_grad():
        best = network(next_seen, next_exists).masked_fill(~next_mask, least).argmax(1)
        value = target(next_seen, next_exists).gather(1, best.unsqueeze(1)).squeeze(1)
        goal = reward + gamma * torch.where(next_mask.any(1), value, torch.zeros(()))
    taken = network(seen, exists).gather(1, choice.unsqueeze(1)).squeeze(1)
    loss = (functional.huber_loss(taken, goal, reduction="none") * counts).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(courses, job, seed):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs, steps, nodes = job["envs"], job["steps"], courses["cpu"].shape[1]
    scale = torch.tensor(job["scale"])
    network, target = (SetNetwork(len(scale), job["width"], scale) for _ in range(2))
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=job["learning_rate"])
    end = job["learning_rate_end"] / job["learning_rate"]
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, end, steps)
    replay = Replay(job["buffer"], nodes, len(scale))
    clusters = Clusters(courses, envs, rng)
    running, returns = np.zeros(envs), []
    features, exists, mask = clusters.observe()
    for step in range(1, steps + 1):
        share = min(step / (job["exploration_fraction"] * steps), 1.0)
        epsilon = 1.0 + share * (job["epsilon_end"] - 1.0)
        with torch.no_grad():
            q = network(torch.from_numpy(features), torch.from_numpy(exists)).numpy()
        wander = rng.uniform(size=envs) < epsilon
        q = np.where(wander[:, None], rng.uniform(size=q.shape), q)
        choice = np.where(mask, q, -np.inf).argmax(axis=1)
        reward, over = clusters.step(choice)
        after = clusters.observe()
        replay.add(
            seen=features, exists=exists, choice=choice, reward=reward,
            counts=mask.any(axis=1).astype(np.float32),
            next_seen=after[0], next_exists=after[1], next_mask=after[2],
        )  # fmt: skip
        running += reward
        returns.extend(running[over].tolist())
        running[over] = 0.0
        features, exists, mask = after
        if over.any():
            clusters.reset(over, rng.integers(0, clusters.many, envs))
            features, exists, mask = clusters.observe()
        if step >= job["learning_starts"]:
            learn(network, target, optimizer, replay, job["batch"], job["gamma"])
            rate.step()
        if step % job["target_every"] == 0:
            target.load_state_dict(network.state_dict())
    return network, replay, returns


def simulator_seconds(courses, job, steps=500):
    """Seconds per step of the clusters alone, choosing at random."""
    rng = np.random.default_rng(0)
    clusters = Clusters(courses, job["envs"], rng)
    began = time.perf_counter()
    for _ in range(steps):
        mask = clusters.observe()[2]
        _, over = clusters.step(np.where(mask, rng.uniform(size=mask.shape), -1.0).argmax(axis=1))
        if over.any():
            clusters.reset(over, rng.integers(0, clusters.many, job["envs"]))
    return (time.perf_counter() - began) / steps


def learner_seconds(network, replay, job, updates=500):
    """Seconds per update alone, on a filled replay."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.0)
    began = time.perf_counter()
    for _ in range(updates):
        learn(network, network, optimizer, replay, job["batch"], job["gamma"])
    return (time.perf_counter() - began) / updates


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job")
    parser.add_argument("out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with np.load(arguments.job) as stored:
        courses = {name: stored[name] for name in stored.files if name != "job"}
        job = json.loads(str(stored["job"]))
    began, cpu = time.perf_counter(), time.process_time()
    network, replay, returns = train(courses, job, arguments.seed)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    tensors = {}
    for part, layers in (("encoder", network.encoder), ("head", network.head)):
        for k, layer in enumerate(m for m in layers if isinstance(m, nn.Linear)):
            tensors[f"{part}.{k}.weight"] = layer.weight.detach().numpy().T
            tensors[f"{part}.{k}.bias"] = layer.bias.detach().numpy()
    told = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "simulator": simulator_seconds(courses, job),
        "learner": learner_seconds(network, replay, job),
        "return": float(np.mean(returns[-100:])),
        "torch": torch.__version__,
    }
    np.savez(arguments.out, told=np.array(json.dumps(told)), **tensors)


if __name__ == "__main__":
    main()
