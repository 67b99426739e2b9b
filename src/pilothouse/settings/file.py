# SPDX-License-Identifier: Apache-2.0
"""The settings file: read it, check it, write it.

The dataclasses of ``pilothouse.settings`` are the schema; this module adds nothing to it. The file
is read node by node, so that every problem names its line, and unquoted words are read by our own
few rules rather than by YAML 1.1, where ``off`` is a truth value and ``1:30`` is ninety. No object
is ever constructed from the file but text, numbers and truth values.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

import pilothouse.settings as schema
from pilothouse.errors import InvalidSetting, MissingFile
from pilothouse.settings import Between, OneWord, Settings

API_VERSION = "pilothouse.dev/v1alpha1"
KIND = "Configuration"
LARGEST_BYTES = 1 << 20  # a settings file is a few kilobytes; more is some other file

_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan")
_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp", "merge", "value")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One setting as a reader of the file sees it."""

    path: str  # "guard.per_agent"
    default: object
    accepts: str  # "a whole number between 0 and 1000000"
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One concern of the file with its settings, in the order of the dataclass."""

    name: str
    doc: str
    fields: tuple[Field, ...]


def load(path: Path | str) -> Settings:
    """Read a file.

    Raises:
        MissingFile: It is not there or cannot be read.
        InvalidSetting: The first problem in it; ``check`` finds them all.
    """
    return parse(_text(Path(path)), name=str(path))


def parse(text: str, *, name: str) -> Settings:
    """Read settings from text; ``name`` is what messages call it."""
    settings, problems = _read(text, name)
    if problems:
        raise InvalidSetting(problems[0])
    return settings


def check(path: Path | str) -> list[str]:
    """Every problem of a file, one line each; empty when it can be used."""
    return _read(_text(Path(path)), str(path))[1]


def with_overrides(
    settings: Settings, overrides: Mapping[str, object], *, source: str = "command line"
) -> Settings:
    """Change single settings by path, held to the same rules as the file.

    Args:
        settings: What to start from.
        overrides: Values by path: ``{"run.seed": 3, "modes.agents.safety": "shadow"}``.
        source: Where the values were given, for messages.
    """
    for path, value in overrides.items():
        settings = _override(settings, path, value, source)
    return settings


def to_tree(settings: Settings) -> dict[str, Any]:
    """The settings as plain values, in the order of the file."""
    tree: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for section in fields(settings):
        group = getattr(settings, section.name)
        tree[section.name] = {f.name: _plain(getattr(group, f.name)) for f in fields(group)}
    return tree


def to_yaml(settings: Settings) -> str:
    """The settings as a file without comments; reading it gives the same settings."""
    return yaml.safe_dump(to_tree(settings), sort_keys=False, allow_unicode=True)


def example() -> str:
    """Every setting with its default, its meaning and what is accepted."""
    lines = [
        "# How Pilothouse runs. Every setting is optional: what is left out keeps its default.",
        "# Durations are seconds of the cluster's clock unless the name says wall.",
        f"apiVersion: {API_VERSION}",
        f"kind: {KIND}",
    ]
    for section in sections():
        lines += ["", *_comment(section.doc, indent=0), f"{section.name}:"]
        for field in section.fields:
            lines += _comment(field.doc, indent=2)
            lines += _comment(f"Accepts {field.accepts}.", indent=2)
            key = field.path.split(".", 1)[1]
            dumped = yaml.safe_dump({key: field.default}, sort_keys=False, allow_unicode=True)
            lines += textwrap.indent(dumped, "  ").splitlines()
    return "\n".join(lines) + "\n"


@cache
def sections() -> tuple[Section, ...]:
    """The schema in words: what the example, the reference page and the tests are made from."""
    docs = _field_docs()
    return tuple(
        Section(
            name=name,
            doc=inspect.cleandoc(group.__doc__ or ""),
            fields=tuple(
                Field(
                    path=f"{name}.{key}",
                    default=_plain(getattr(group(), key)),
                    accepts=_accepts(hint, getattr(group(), key)),
                    doc=docs.get((group.__name__, key), ""),
                )
                for key, hint in _hints(group).items()
            ),
        )
        for name, group in _hints(Settings).items()
    )


# Reading.


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise MissingFile(
            f"{path} does not exist. Name a settings file, or write one: pilothouse config init."
        ) from None
    except IsADirectoryError:
        raise MissingFile(f"{path} is a directory. Name a settings file in it.") from None
    except OSError as error:
        raise MissingFile(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > LARGEST_BYTES:
        raise InvalidSetting(f"{path} is larger than 1 MiB. A settings file is a few kilobytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSetting(
            f"{path} is not text: byte {data[error.start]:#04x} at offset {error.start} is not "
            "UTF-8. A settings file is YAML in UTF-8."
        ) from None


def _read(text: str, name: str) -> tuple[Settings, list[str]]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        return Settings(), [_bad_yaml(error, name)]
    except yaml.reader.ReaderError as error:
        shown = f"character {error.character:#04x} at offset {error.position}"
        return Settings(), [f"{name} is not text: {shown} is not allowed in YAML."]
    except RecursionError:
        return Settings(), [f"{name} nests too deeply to be a settings file."]
    if root is None:
        return Settings(), [f"{name} is empty. Write one to start from: pilothouse config init."]
    reader = _Reader(name)
    return reader.settings(root), reader.problems


def _bad_yaml(error: yaml.MarkedYAMLError, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{name}:{mark.line + 1}" if mark else name
    what = _one_line(error.problem or error.context or "it cannot be parsed")
    return f"The file is not valid YAML: {what} ({where})."


class _Reader:
    """Walks the nodes of one file and keeps every problem with its line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[str] = []

    def settings(self, root: yaml.Node) -> Settings:
        hints = _hints(Settings)
        groups: dict[str, Any] = {}
        seen: dict[str, yaml.Node] = {}
        for key, node in self._entries(root, "", ["apiVersion", "kind", *hints]):
            seen[key] = node
            if key in hints:
                groups[key] = self._group(node, key, hints[key])
        self._constant(root, seen, "apiVersion", API_VERSION)
        self._constant(root, seen, "kind", KIND)
        return Settings(**groups)

    def _constant(self, root: yaml.Node, seen: dict[str, yaml.Node], key: str, wanted: str) -> None:
        if key not in seen:
            self.problems.append(f"{key} is missing; it must be {wanted} ({self._at(root)}).")
        elif (given := _value(seen[key])) != wanted:
            where = self._at(seen[key])
            self.problems.append(f"{key} must be {wanted}, but got {_shown(given)} ({where}).")

    def _group(self, node: yaml.Node, section: str, group: type) -> Any:
        hints = _hints(group)
        default = group()
        values: dict[str, Any] = {}
        for key, child in self._entries(node, section, list(hints)):
            path = f"{section}.{key}"
            value = self._entry(child, path, hints[key], getattr(default, key))
            if value is not _BAD:
                values[key] = value
        return group(**values)

    def _entry(self, node: yaml.Node, path: str, hint: Any, default: object) -> Any:
        if typing.get_origin(hint) is not dict:
            return self._scalar(node, path, hint)
        merged = dict(typing.cast("dict[str, Any]", default))
        of_value = typing.get_args(hint)[1]
        for key, child in self._entries(node, path, _known_keys(path, merged)):
            value = self._scalar(child, f"{path}.{key}", of_value)
            if value is not _BAD:
                merged[key] = value
        return merged

    def _scalar(self, node: yaml.Node, path: str, hint: Any) -> Any:
        try:
            return _validated(_value(node), hint, path)
        except _Unacceptable as problem:
            self.problems.append(f"{problem} ({self._at(node)}).")
            return _BAD

    def _entries(
        self, node: yaml.Node, path: str, known: list[str] | None
    ) -> Iterator[tuple[str, yaml.Node]]:
        """Key and value of a mapping; unknown and repeated keys become problems instead."""
        if isinstance(node, yaml.ScalarNode) and _value(node) is None:
            return  # a section whose settings are all commented out
        if not isinstance(node, yaml.MappingNode):
            what = path or "The file"
            given = _shown(_value(node))
            self.problems.append(
                f"{what} must be a mapping (key: value), but got {given} ({self._at(node)})."
            )
            return
        first: dict[str, int] = {}
        for key_node, child in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else _shown(_BAD)
            full = f"{path}.{key}" if path else key
            if key in first:
                where = self._at(key_node)
                self.problems.append(
                    f"{_one_line(full)} is set twice, first in line {first[key]}. "
                    f"Keep one ({where})."
                )
                continue
            first[key] = key_node.start_mark.line + 1
            if (sentence := _unknown(full, key, path, known)) is not None:
                self.problems.append(f"{sentence} ({self._at(key_node)}).")
                continue
            yield key, child

    def _at(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"


def _value(node: yaml.Node) -> object:
    """A scalar as text, number, truth value or None; anything else is ``_BAD``."""
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _PLAIN_TAGS:
        return _BAD
    text = node.value
    if node.style is not None:
        return text
    if text in _NOTHING:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _INTEGER.fullmatch(text) and len(text) < 400:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return text


# Validating: the same rules for the file and for overrides.


class _Unacceptable(Exception):
    """Carries the sentence without its place."""


class _Bad:
    """Marks a value that is no scalar, or that was refused."""


_BAD = _Bad()


def _override(settings: Settings, path: str, value: object, source: str) -> Settings:
    section, _, rest = path.partition(".")
    key, _, entry = rest.partition(".")
    known = [field.path for group in sections() for field in group.fields]
    if f"{section}.{key}" not in known:
        raise InvalidSetting(f"{_unknown(path, path, '', known)} ({source}).")
    group = getattr(settings, section)
    hint = _hints(group.__class__)[key]
    try:
        changed = _changed(getattr(group, key), hint, f"{section}.{key}", entry, value)
    except _Unacceptable as problem:
        raise InvalidSetting(f"{problem} ({source}).") from None
    return replace(settings, **{section: replace(group, **{key: changed})})


def _changed(current: Any, hint: Any, path: str, entry: str, value: object) -> Any:
    if typing.get_origin(hint) is not dict:
        if entry:
            raise _Unacceptable(f"{path} has no parts, but got {path}.{entry}")
        return _validated(value, hint, path)
    parts = {entry: value} if entry else value
    if not isinstance(parts, dict):
        raise _Unacceptable(f"{path} must be a mapping, but got {_shown(value)}")
    merged = dict(current)
    for name, part in parts.items():
        sentence = _unknown(f"{path}.{name}", str(name), path, _known_keys(path, merged))
        if sentence is not None:
            raise _Unacceptable(sentence)
        merged[str(name)] = _validated(part, typing.get_args(hint)[1], f"{path}.{name}")
    return merged


def _validated(value: object, hint: Any, path: str) -> Any:
    """The value as the type wants it, or a sentence that says what is accepted."""
    kind, bound = _split(hint)
    accepted = _coerced(value, kind)
    if accepted is _BAD or not _within(accepted, bound):
        quote = ". Quote it" if kind is str and isinstance(value, (int, float)) else ""
        raise _Unacceptable(f"{path} must be {_accepts(hint)}, but got {_shown(value)}{quote}")
    return accepted


def _coerced(value: object, kind: Any) -> Any:
    if typing.get_origin(kind) is Literal:
        known = typing.get_args(kind)
        return next((m for m in known if value == m and type(value) is type(m)), _BAD)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((m for m in kind if value == m.value), _BAD)
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    return value if type(value) is kind else _BAD  # exact: a truth value is not a number


def _within(value: Any, bound: object) -> bool:
    if isinstance(bound, Between):
        return bool(bound.low <= value <= bound.high)  # NaN is not between anything
    if isinstance(bound, OneWord):
        return bound.admits(value)
    return True


def _split(hint: Any) -> tuple[Any, object]:
    """A type and its bound, if it has one."""
    if typing.get_origin(hint) is Annotated:
        kind, bound, *_ = typing.get_args(hint)
        return kind, bound
    return hint, None


def _accepts(hint: Any, default: object = None) -> str:
    """What a type accepts, in the words of messages and comments."""
    kind, bound = _split(hint)
    if typing.get_origin(kind) is dict:
        keys = ", ".join(typing.cast("dict[str, Any]", default or {}))
        which = f" for each of {keys}" if keys else " by name"
        return f"{_accepts(typing.get_args(kind)[1])}{which}"
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(str(m) for m in typing.get_args(kind))}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(m.value) for m in kind)}"
    if isinstance(bound, OneWord):
        return bound.description
    noun = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
    if isinstance(bound, Between):
        return f"{noun} between {_number(bound.low)} and {_number(bound.high)}"
    return noun


def _known_keys(path: str, default: dict[str, Any]) -> list[str] | None:
    """The keys a mapping accepts: those of its default, or agents for the modes."""
    return None if path == "modes.agents" else list(default)


def _unknown(full: str, key: str, path: str, known: list[str] | None) -> str | None:
    if path == "modes.agents":
        agents = list(Settings().score.weights)
        agent, slash, namespace = key.partition("/")
        if agent in agents and bool(slash) == bool(namespace):
            return None
        what, key, known = "agent", agent or key, agents
    elif known is None or key in known:
        return None
    else:
        what = "setting"
    close = difflib.get_close_matches(key, known, n=1)
    prefix = full[: -len(key)] if what == "setting" and full.endswith(key) else ""
    hint = f' Did you mean "{prefix}{close[0]}"?' if close else ""
    listed = "" if close and len(known) > 12 else f" Available: {', '.join(known)}"
    return f'Unknown {what} "{_one_line(full)}".{hint}{listed}'.rstrip(".")


# Words.


def _shown(value: object) -> str:
    """A given value as a message quotes it: one line, never long."""
    if isinstance(value, _Bad):
        return "something nested or tagged"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return f'"{value.value}"'
    if isinstance(value, str):
        return f'"{_one_line(value)}"'
    return _one_line(str(value) if isinstance(value, (int, float)) else type(value).__name__)


def _one_line(text: str) -> str:
    clean = "".join(c if c.isprintable() else " " for c in text)
    return clean if len(clean) <= 60 else f"{clean[:57]}..."


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value.value if isinstance(value, Enum) else value


def _comment(text: str, *, indent: int) -> list[str]:
    margin = " " * indent + "# "
    return textwrap.wrap(text, width=96, initial_indent=margin, subsequent_indent=margin)


@cache
def _hints(group: type) -> dict[str, Any]:
    """Types by field, bounds included; only dataclasses are asked."""
    if not is_dataclass(group):
        raise TypeError(f"{group.__name__} is not a dataclass")
    hints = typing.get_type_hints(group, include_extras=True)
    return {f.name: hints[f.name] for f in fields(group)}


def _field_docs() -> dict[tuple[str, str], str]:
    """The literal docstrings under the fields, by class and field: Python itself drops them."""
    docs: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(schema)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, after in zip(node.body, node.body[1:], strict=False):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[node.name, name] = " ".join(inspect.cleandoc(text).split())
    return docs
