# SPDX-License-Identifier: Apache-2.0
"""The chart's documents, to look things up in."""

from __future__ import annotations

from typing import Any

import yaml

from deploy.render import render

ON = "placement.enabled=true"
Document = dict[str, Any]


def rendered(helm: str, *values: str) -> list[Document]:
    return [d for d in yaml.safe_load_all(render(helm, *values)) if d]


def find(found: list[Document], kind: str, name: str) -> Document | None:
    return next((d for d in found if (d["kind"], d["metadata"]["name"]) == (kind, name)), None)


def named(found: list[Document], kind: str, name: str) -> Document:
    one = find(found, kind, name)
    assert one is not None, f"there is no {kind} {name}"
    return one
