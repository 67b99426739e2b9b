# SPDX-License-Identifier: Apache-2.0
"""A reward as a weighted sum of named components, from code or from a file.

A file looks like this; unknown keys and components are errors::

    name: night-shift
    resource: cpu            # requests (CPU and memory), pods, cpu, memory or disk; may be left out
    components:
      new-node: 1.0
      idle-power: 0.5
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pilothouse.errors import InvalidSetting, MissingFile, UnknownName
from pilothouse.learn.placement.placed import RESOURCES, Array, Placed, Resource
from pilothouse.learn.placement.rewards.components import COMPONENTS


class Reward(Protocol):
    """Values a placement; says which choices end the episode."""

    @property
    def name(self) -> str: ...

    @property
    def resource(self) -> Resource:
        """What it calls load."""
        ...

    def __hash__(self) -> int:
        """Compiled programs are kept by reward, so it is a frozen value."""
        ...

    def __call__(self, placed: Placed) -> tuple[Array, Array]:
        """Reward (...) and whether the episode ends (...)."""
        ...

    def card(self) -> dict[str, Any]:
        """What the artefact's card says about it."""
        ...


def worth(reward: Reward, placed: Placed) -> tuple[Array, Array]:
    """What the reward says; nothing, where nothing was placed."""
    value, ends = reward(placed)
    done = placed.chosen.any(axis=-1)
    return placed.xp.where(done, value, 0.0), done & ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Weights over components; never ends an episode."""

    name: str
    resource: Resource
    weights: tuple[tuple[str, float], ...]

    def __call__(self, placed: Placed) -> tuple[Array, Array]:
        total = sum(w * COMPONENTS[c](placed, self.resource) for c, w in self.weights)
        return total, placed.xp.zeros_like(placed.chosen[..., 0])

    def card(self) -> dict[str, Any]:
        return {"name": self.name, "resource": self.resource, "components": dict(self.weights)}


def from_file(path: Path, usual: str = "requests") -> Mixture:
    """The reward a file describes, on the usual resource if it names none; mistakes are named."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingFile(f"The reward file {path} cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise InvalidSetting(f"{path} is not YAML: {error}.") from None
    if not isinstance(document, dict):
        raise InvalidSetting(f"{path} must be a mapping with components, but got {document!r}.")
    extra = set(document) - {"name", "resource", "components"}
    if extra:
        keys = ", ".join(sorted(map(str, extra)))
        raise InvalidSetting(f"{path} has unknown keys: {keys}. Known: name, resource, components.")
    resource = document.get("resource", usual)
    if resource not in RESOURCES:
        where = f" in {path}" if "resource" in document else ""
        raise UnknownName.among(f"resource{where}", str(resource), RESOURCES)
    return Mixture(
        name=str(document.get("name", path.stem)),
        resource=resource,
        weights=_weights(document.get("components"), path),
    )


def _weights(given: object, path: Path) -> tuple[tuple[str, float], ...]:
    if not isinstance(given, dict) or not given:
        raise InvalidSetting(f"{path} needs components: a mapping of names to weights.")
    for name, weight in given.items():
        if name not in COMPONENTS:
            raise UnknownName.among(f"component in {path}", str(name), tuple(COMPONENTS))
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not number or not abs(weight) <= 1000:
            raise InvalidSetting(
                f"{path}: the weight of {name} must be a number between -1000 and 1000, "
                f"but got {weight!r}."
            )
    return tuple((str(name), float(weight)) for name, weight in given.items())
