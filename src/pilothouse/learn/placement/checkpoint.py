# SPDX-License-Identifier: Apache-2.0
"""A training's checkpoint: one file of plain arrays and a head that says whose they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.errors import ArtifactBroken, MissingFile


def write(path: Path, head: dict[str, Any], leaves: Sequence[Any]) -> None:
    """Replace the file at once, so that a killed training leaves the one before."""
    arrays: dict[str, Any] = {f"leaf{k}": np.asarray(x) for k, x in enumerate(leaves)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial.npz")
    np.savez(partial, **arrays, head=np.array(json.dumps(head)))
    partial.replace(path)


def read(path: Path, identity: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The head and the arrays in their order; refused where ``identity`` is another one."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        head = json.loads(str(arrays.pop("head")))
    except FileNotFoundError:
        raise MissingFile(f"There is no checkpoint at {path}. Train without --resume.") from None
    except (OSError, ValueError, KeyError) as error:
        raise ArtifactBroken(f"The checkpoint {path} cannot be read: {error}.") from None
    if head["identity"] != identity:
        raise ArtifactBroken(
            f"The checkpoint {path} belongs to other settings, another reward or other seeds. "
            "Train with what it was started with, or into another folder."
        )
    return head, [arrays[f"leaf{k}"] for k in range(len(arrays))]
