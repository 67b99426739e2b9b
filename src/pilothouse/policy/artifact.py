# SPDX-License-Identifier: Apache-2.0
"""A policy on disk: ``NAME.safetensors`` with the weights and ``NAME.json``, its card.

The card says what the network expects (features, scaling, sizes), how it was made (reward, seed,
revision) and what was measured; its hash ties it to the weights. Reading refuses anything that is
not exactly a policy this build can run, with the reason, so that whoever holds the previous one
can keep it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import ArtifactBroken, MissingFile, UnknownName
from pilothouse.policy import safetensors
from pilothouse.policy.features import (
    FEATURES,
    NODE_FEATURES,
    POD_FEATURES,
    SCALING,
    SEES_DISK,
    BesideCPU,
    seeing,
)
from pilothouse.policy.network import Layer, Network

SCHEMA = "pilothouse.placement/v1"
MOST_CARD_BYTES = 256 << 10
MOST_WIDTH = 512
MOST_LAYERS = 6
MOST_WEIGHT = 1e6  # beyond this float32 overflows within a few layers
POOLS = ("mean", "max")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Widths of the layers, input first; the head's input is one encoding and the two pools."""

    encoder: tuple[int, ...]
    head: tuple[int, ...]
    activation: str = "relu"
    pool: tuple[str, ...] = POOLS


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy is, in words and numbers a person can check."""

    schema: str = SCHEMA
    policy: str  # "ee", "lb", "el-rl" or a name of one's own
    node_features: tuple[str, ...] = NODE_FEATURES
    pod_features: tuple[str, ...] = POD_FEATURES
    scaling: dict[str, float] = msgspec.field(default_factory=lambda: dict(SCALING))
    network: Shape
    reward: dict[str, Any] = {}
    seed: int = 0
    revision: str = ""
    command: str = ""  # what makes the same weights again
    made_with: dict[str, str] = {}  # versions that the bytes depend on
    weights_sha256: str = ""
    trained_on_nodes_max: int = 0
    measured: dict[str, Any] = {}

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what the network sees, in its order."""
        return self.node_features + self.pod_features

    @property
    def beside_cpu(self) -> BesideCPU:
        """The resource it sees beside CPU."""
        return "disk" if SEES_DISK in self.node_features else "memory"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """A card and the network it describes."""

    card: Card
    network: Network
    weights: bytes  # the safetensors file, for whoever has to pass it on

    @property
    def version(self) -> str:
        """What tells two policies apart: the name and the beginning of the weights' hash."""
        return f"{self.card.policy}-{self.card.weights_sha256[:12]}"


def write(stem: Path, card: Card, tensors: safetensors.Tensors) -> Card:
    """Write both files; returns the card with the hash in it. The card comes last, so it counts."""
    data = safetensors.encode(tensors)
    card = msgspec.structs.replace(card, weights_sha256=hashlib.sha256(data).hexdigest())
    decode(_to_json(card), data, str(stem))  # never write what reading would refuse
    stem.parent.mkdir(parents=True, exist_ok=True)
    for path, content in ((_weights(stem), data), (_card(stem), _to_json(card))):
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(content)
        partial.replace(path)
    return card


def read(path: Path) -> Policy:
    """The policy at ``NAME``, ``NAME.json``, ``NAME.safetensors`` or alone in a folder."""
    stem = _stem(path)
    card = _bounded(_card(stem), MOST_CARD_BYTES)
    return decode(card, _bounded(_weights(stem), safetensors.MOST_BYTES), str(stem))


def decode(card: bytes, weights: bytes, what: str) -> Policy:
    """A policy from the contents of its two files."""
    described = _described(card, what)
    tensors = safetensors.decode(weights, f"{what}.safetensors")
    found = hashlib.sha256(weights).hexdigest()
    if found != described.weights_sha256:
        raise _broken(
            what,
            f"its card is about weights with the hash {described.weights_sha256[:12]}, "
            f"but these have {found[:12]}",
        )
    network = _network(described, tensors, what)
    return Policy(card=described, network=network, weights=weights)


def shipped_names() -> tuple[str, ...]:
    """Policies that come with the package."""
    folder = resources.files("pilothouse.policy") / "shipped"
    names = (Path(entry.name) for entry in folder.iterdir())
    return tuple(sorted(name.stem for name in names if name.suffix == ".json"))


def shipped(name: str) -> Policy:
    """A policy that comes with the package, by name."""
    if name not in shipped_names():
        raise UnknownName.among("policy", name, shipped_names() or ("none yet",))
    folder = resources.files("pilothouse.policy") / "shipped"
    weights = (folder / f"{name}.safetensors").read_bytes()
    return decode((folder / f"{name}.json").read_bytes(), weights, name)


def files_of(path: Path) -> tuple[Path, Path]:
    """Card and weights of the policy that a file, a name or a folder with a single policy means."""
    stem = _stem(path)
    return _card(stem), _weights(stem)


def _stem(path: Path) -> Path:
    if path.is_dir():
        cards = sorted(path.glob("*.json"))
        if len(cards) != 1:
            raise MissingFile(
                f"{path} holds {len(cards)} cards, so it is not clear which policy is meant. "
                "Name one: FOLDER/NAME.json."
            )
        path = cards[0]
    return path.with_suffix("") if path.suffix in (".json", ".safetensors") else path


def _weights(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.safetensors")


def _card(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.json")


def _bounded(path: Path, most: int) -> bytes:
    """A file's bytes, read no further than one beyond what is allowed."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise MissingFile(
            f"{path} cannot be read ({error.strerror}). A policy is two files: NAME.json and "
            "NAME.safetensors."
        ) from error
    if len(data) > most:
        raise ArtifactBroken(f"{path} is refused: it is larger than {most} bytes.")
    return data


def _to_json(card: Card) -> bytes:
    encoded = msgspec.json.encode(card, order="deterministic")
    return msgspec.json.format(encoded, indent=1) + b"\n"


def _described(data: bytes, what: str) -> Card:
    try:
        card = msgspec.json.decode(data, type=Card)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise _broken(what, f"its card cannot be read ({error})") from error
    if card.schema != SCHEMA:
        raise _broken(what, f'it follows "{card.schema}", but this build runs "{SCHEMA}"')
    for kind, given, known in (
        ("node_features", card.node_features, NODE_FEATURES),
        ("pod_features", card.pod_features, POD_FEATURES),
    ):
        if given != seeing(known, card.beside_cpu):
            raise _broken(
                what,
                f"its {kind} are {list(given)}, but this build makes {list(known)}, "
                "all of them with memory or all of them with disk",
            )
    for name, divisor in card.scaling.items():
        if name not in card.features or not (1e-6 <= divisor <= 1e6):
            raise _broken(what, f'its scaling of "{name}" by {divisor} cannot be used')
    _check_shape(card.network, what)
    return card


def _check_shape(shape: Shape, what: str) -> None:
    for part, widths in (("encoder", shape.encoder), ("head", shape.head)):
        if not 2 <= len(widths) <= MOST_LAYERS + 1:
            raise _broken(what, f"its {part} has {len(widths) - 1} layers, not 1 to {MOST_LAYERS}")
        if not all(1 <= width <= MOST_WIDTH for width in widths):
            raise _broken(what, f"its {part} is {list(widths)} wide, not 1 to {MOST_WIDTH}")
    if shape.encoder[0] != len(FEATURES):
        raise _broken(what, f"its encoder takes {shape.encoder[0]} features, not {len(FEATURES)}")
    if shape.head[0] != 3 * shape.encoder[-1] or shape.head[-1] != 1:
        raise _broken(what, f"its head {list(shape.head)} does not go from 3 encodings to one Q")
    if shape.activation != "relu" or shape.pool != POOLS:
        raise _broken(
            what, f"it asks for {shape.activation} and {list(shape.pool)}, not relu and mean, max"
        )


def _network(card: Card, tensors: Mapping[str, NDArray[np.float32]], what: str) -> Network:
    left = dict(tensors)
    encoder = _layers(left, "encoder", card.network.encoder, what)
    head = _layers(left, "head", card.network.head, what)
    if left:
        raise _broken(what, f"it holds tensors that its card does not know: {sorted(left)[:4]}")
    scale = [1.0 / card.scaling.get(name, 1.0) for name in card.features]
    return Network(
        encoder=encoder,
        head=head,
        scale=np.asarray(scale, np.float32),
        beside_cpu=card.beside_cpu,
    )


def _layers(
    left: dict[str, NDArray[np.float32]], part: str, widths: tuple[int, ...], what: str
) -> tuple[Layer, ...]:
    return tuple(
        Layer(
            weight=_tensor(left, f"{part}.{k}.weight", (widths[k], widths[k + 1]), what),
            bias=_tensor(left, f"{part}.{k}.bias", (widths[k + 1],), what),
        )
        for k in range(len(widths) - 1)
    )


def _tensor(
    left: dict[str, NDArray[np.float32]], name: str, shape: tuple[int, ...], what: str
) -> NDArray[np.float32]:
    found = left.pop(name, None)
    if found is None:
        raise _broken(what, f'the tensor "{name}" is missing')
    if found.shape != shape:
        raise _broken(what, f'"{name}" is {list(found.shape)}, but its card says {list(shape)}')
    if not np.isfinite(found).all():
        raise _broken(what, f'"{name}" holds values that are not numbers')
    if np.abs(found).max() > MOST_WEIGHT:
        raise _broken(what, f'"{name}" holds weights beyond {MOST_WEIGHT:g}')
    return found


def _broken(what: str, reason: str) -> ArtifactBroken:
    return ArtifactBroken(f"{what} is refused: {reason}. Train the policy again, or restore it.")
