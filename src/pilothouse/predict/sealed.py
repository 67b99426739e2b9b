# SPDX-License-Identifier: Apache-2.0
"""One JSON file per forecaster: a schema, a hash over the content, the content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pilothouse.errors import ArtifactBroken, MissingFile

SCHEMA = 1


def seal(body: dict[str, Any]) -> bytes:
    """The file of a forecaster; the same body gives the same bytes."""
    text = _text(body)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"schema":{SCHEMA},"sha256":"{digest}","forecaster":{text}}}\n'.encode()


def unseal(data: bytes, source: str, what: str) -> dict[str, Any]:
    """The content of such a file, whole and unaltered; ``what`` is the command's own word."""
    again = f"Train it again with: pilothouse train {what}"
    try:
        document = json.loads(data)
        schema, digest, body = document["schema"], document["sha256"], document["forecaster"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactBroken(
            f"{source} is not a forecaster, or was cut off ({type(error).__name__}). {again}"
        ) from error
    if schema != SCHEMA:
        raise ArtifactBroken(
            f"{source} follows schema {schema}, but this build knows {SCHEMA}. {again}"
        )
    if hashlib.sha256(_text(body).encode()).hexdigest() != digest:
        raise ArtifactBroken(f"{source} was altered since it was trained. {again}")
    if not isinstance(body, dict):
        raise ArtifactBroken(f"{source} is not a forecaster. {again}")
    return body


def read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MissingFile(
            f"Cannot read the forecaster {path}: {error.strerror}. "
            f"Train one with: pilothouse train {what}"
        ) from error


def _text(body: Any) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))
