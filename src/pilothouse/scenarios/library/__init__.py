# SPDX-License-Identifier: Apache-2.0
"""The scenario files that come with Pilothouse, and the reader for any other."""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from pilothouse.errors import InvalidSetting, MissingFile, UnknownName
from pilothouse.scenarios.scenario import Range, Scenario

MOST_LATENCY_MS = 10_000
# Made to train and to judge forecasters; comparisons of the whole loop go without them.
FOR_FORECASTS = ("failing-rack", "flaky-nodes", "weary-nodes")


def names() -> tuple[str, ...]:
    """The scenarios of the library, by name."""
    here = resources.files(__name__)
    return tuple(sorted(f.name[:-5] for f in here.iterdir() if f.name.endswith(".yaml")))


def load(name_or_path: str) -> Scenario:
    """A scenario of the library by name, or a file by path (anything with a dot or a slash)."""
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise MissingFile(
                f"Cannot read the scenario {name_or_path}: {error.strerror}. "
                f"Give an existing file, or one of: {', '.join(names())}."
            ) from error
        return parse(text, name=path.stem, source=name_or_path)
    if name_or_path not in names():
        raise UnknownName.among("scenario", name_or_path, names())
    text = resources.files(__name__).joinpath(f"{name_or_path}.yaml").read_text(encoding="utf-8")
    return parse(text, name=name_or_path, source=f"{name_or_path}.yaml")


def parse(text: str, *, name: str, source: str) -> Scenario:
    """Read one scenario; every complaint names the key and the file."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        line = str(error).replace("\n", " ")
        raise InvalidSetting(f"{source} is not valid YAML: {line}. Correct the file.") from error
    scenario: Scenario = replace(_read(Scenario, data, "scenario", source), name=name)
    for stimulus in scenario.exerciser.stimuli:
        _check_ranges(scenario, stimulus.kind.value, stimulus.tuning, stimulus.held_out, source)
    for place, change in enumerate(scenario.exerciser.latency):
        if not change.node_ms or max(change.node_ms) > MOST_LATENCY_MS:
            raise _wrong(
                f"scenario.exerciser.latency[{place}].node_ms",
                f"one or more latencies of at most {MOST_LATENCY_MS} ms",
                list(change.node_ms),
                source,
            )
    return scenario


def _check_ranges(
    scenario: Scenario, kind: str, tuning: dict[str, Range], held_out: dict[str, Range], source: str
) -> None:
    known = ("magnitude", "duration_seconds")
    for given in (*tuning, *held_out):
        if given not in known:
            raise InvalidSetting(
                f'{kind} has an unknown parameter "{given}" ({source}). '
                f"Accepted: {', '.join(known)}."
            )
    for parameter in known:
        if parameter not in tuning or parameter not in held_out:
            raise InvalidSetting(
                f"{kind} must give {parameter} under tuning and held_out ({source})."
            )
    if all(tuning[p].overlaps(held_out[p]) for p in known):
        raise InvalidSetting(
            f"{kind} draws the same values for tuning and held_out ({source}). "
            "Separate the ranges of at least one parameter."
        )


def _read(kind: Any, value: Any, where: str, source: str) -> Any:
    """One value of an annotated type, or a complaint."""
    if kind is Range:
        return _read_range(value, where, source)
    if is_dataclass(kind):
        return _read_fields(kind, value, where, source)
    if get_origin(kind) is tuple:
        items = _expect(list, value, where, "a list", source)
        inner = get_args(kind)[0]
        return tuple(_read(inner, v, f"{where}[{i}]", source) for i, v in enumerate(items))
    if get_origin(kind) is dict:
        table = _expect(dict, value, where, "a mapping", source)
        inner = get_args(kind)[1]
        return {str(k): _read(inner, v, f"{where}.{k}", source) for k, v in table.items()}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        known = [member.value for member in kind]
        if value not in known:
            raise UnknownName.among(f"{where} in {source}", str(value), known)
        return kind(value)
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _wrong(where, "a whole number of 0 or more", value, source)
        return value
    if get_origin(kind) in (types.UnionType,):
        raise _wrong(where, "a plain value", value, source)
    return _expect(str, value, where, "text", source)


def _read_fields(kind: Any, value: Any, where: str, source: str) -> Any:
    given = _expect(dict, value, where, "a mapping", source)
    hints = get_type_hints(kind)
    hidden = {"name", "ranges"} if kind is Scenario else set()
    known = [f.name for f in fields(kind) if f.name not in hidden]
    for key in given:
        if key not in known:
            raise UnknownName.among(f"key of {where} in {source}", str(key), known)
    for item in fields(kind):
        required = item.default is MISSING and item.default_factory is MISSING
        if required and item.name not in given:
            raise InvalidSetting(f"{where}.{item.name} is missing ({source}). Add it.")
    return kind(**{k: _read(hints[k], v, f"{where}.{k}", source) for k, v in given.items()})


def _read_range(value: Any, where: str, source: str) -> Range:
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value, value]
    whole = isinstance(value, list) and len(value) == 2
    if not whole or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
        raise _wrong(where, "two whole numbers [low, high]", value, source)
    low, high = value
    if low < 0 or low > high:
        raise _wrong(where, "a range [low, high] with 0 <= low <= high", value, source)
    return Range(low, high)


def _expect(kind: type, value: Any, where: str, words: str, source: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong(where, words, value, source)
    return value


def _wrong(where: str, words: str, value: Any, source: str) -> InvalidSetting:
    return InvalidSetting(f"{where} must be {words}, but got {value!r} ({source}).")
