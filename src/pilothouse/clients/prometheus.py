# SPDX-License-Identifier: Apache-2.0
"""Queries to Prometheus: templates with escaped values, and answers that are not taken on trust.

A server may be absent, slow, empty or lying. Values that are no finite number, and series that
come twice and contradict each other, are dropped and counted, so that whoever reads can see how
thin the data is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2
import msgspec

from pilothouse.errors import BackendError, ClusterUnreachable, InvalidSetting

ANSWER_SECONDS = 5.0
_PLACE = re.compile(r"\$([a-z_]+)")


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Series] = []


class _Answer(msgspec.Struct, rename="camel"):
    status: str = ""
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


@dataclass(frozen=True, slots=True)
class Row:
    """One series: its labels and its points (Unix seconds, value), oldest first."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        return self.points[-1][1]

    @property
    def at(self) -> float:
        return self.points[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rows that can be used, and how many could not."""

    rows: tuple[Row, ...]
    dropped: int


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values into ``$name`` places of a query, escaped for a double-quoted PromQL string.

    A value can never end its string, so a hostile node name stays a name.
    """
    places = set(_PLACE.findall(template))
    if unknown := sorted(places ^ values.keys()):
        raise InvalidSetting(
            f"The query has the places {sorted(places)}, but got values for "
            f"{sorted(values)}; {', '.join(unknown)} does not match. The query: {template}"
        )
    # One pass, so that a value that looks like a place stays a value.
    return _PLACE.sub(lambda found: escape(values[found[1]]), template)


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Prometheus:
    """One server. ``get`` is a method of httpx2's asynchronous client."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidSetting(
                f'The address of Prometheus must begin with http:// or https://, but is "{url}".'
            )
        self.url = url.rstrip("/")
        self._client = httpx2.AsyncClient(
            base_url=self.url, timeout=ANSWER_SECONDS, trust_env=False
        )
        self._decoder = msgspec.json.Decoder(_Answer)

    async def query(self, query: str) -> Answer:
        """The newest point of every series."""
        return await self._ask("/api/v1/query", {"query": query})

    async def history(self, query: str, *, begin: float, end: float, step_seconds: int) -> Answer:
        """Points from ``begin`` to ``end`` (Unix seconds)."""
        parameters = {"query": query, "start": f"{begin:.3f}", "end": f"{end:.3f}"}
        return await self._ask("/api/v1/query_range", parameters | {"step": str(step_seconds)})

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, path: str, parameters: Mapping[str, str]) -> Answer:
        try:
            response = await self._client.post(path, data=dict(parameters))
        except httpx2.TimeoutException:
            raise ClusterUnreachable(
                f"Prometheus at {self.url} did not answer within {ANSWER_SECONDS:g} s."
            ) from None
        except httpx2.HTTPError as error:
            raise ClusterUnreachable(
                f"Prometheus at {self.url} did not answer: {error}."
            ) from error
        try:
            answer = self._decoder.decode(response.content)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise BackendError(
                f"{self.url} answered {response.status_code} with something that is not "
                "Prometheus' format. Is this the address of Prometheus?"
            ) from None
        if answer.status != "success":
            raise BackendError(f"Prometheus refused a query: {answer.error}")
        return _sift(answer.data.result)


def _sift(series: list[_Series]) -> Answer:
    rows: dict[tuple[tuple[str, str], ...], Row] = {}
    contradicted: set[tuple[tuple[str, str], ...]] = set()
    dropped = 0
    for one in series:
        points = one.values or ([one.value] if one.value is not None else [])
        good = []
        for at, text in points:
            value = _number(text)
            if value is None:
                dropped += 1
            else:
                good.append((at, value))
        key = tuple(sorted(one.metric.items()))
        if not good:
            continue
        if key in rows:
            dropped += len(good)
            if rows[key].points != tuple(good):
                contradicted.add(key)  # nobody can say which of them is true
            continue
        rows[key] = Row(one.metric, tuple(good))
    for key in contradicted:
        dropped += len(rows.pop(key).points)
    return Answer(rows=tuple(rows.values()), dropped=dropped)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
