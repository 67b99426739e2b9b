# SPDX-License-Identifier: Apache-2.0
"""Queries cannot be broken out of, and answers are not taken on trust."""

from __future__ import annotations

import pytest

from pilothouse.clients.prometheus import _Series, _sift, fill
from pilothouse.errors import InvalidSetting


def test_value_cannot_end_its_string() -> None:
    query = fill('up{node="$node"}', {"node": 'a"} or vector(1) #'})
    assert query == 'up{node="a\\"} or vector(1) #"}'


def test_value_that_looks_like_a_place_stays_a_value() -> None:
    query = fill('x{a="$one",b="$two"}', {"one": "$two", "two": "2"})
    assert query == 'x{a="$two",b="2"}'


@pytest.mark.parametrize("values", [{}, {"node": "a", "other": "b"}])
def test_places_and_values_must_match(values: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match="does not match"):
        fill('up{node="$node"}', values)


def test_lies_are_dropped_and_counted() -> None:
    answer = _sift(
        [
            _Series(metric={"pod": "a"}, value=(1.0, "NaN")),
            _Series(metric={"pod": "b"}, value=(1.0, "+Inf")),
            _Series(metric={"pod": "c"}, value=(1.0, "3")),
            _Series(metric={"pod": "c"}, value=(1.0, "3")),
            _Series(metric={"pod": "d"}, value=(1.0, "words")),
        ]
    )
    assert [(row.labels["pod"], row.value) for row in answer.rows] == [("c", 3.0)]
    assert answer.dropped == 4


def test_series_that_contradict_each_other_are_believed_neither_of_them() -> None:
    answer = _sift(
        [
            _Series(metric={"pod": "a"}, value=(1.0, "3")),
            _Series(metric={"pod": "b"}, value=(1.0, "3")),
            _Series(metric={"pod": "a"}, value=(1.0, "4")),
        ]
    )
    assert [row.labels["pod"] for row in answer.rows] == ["b"]
    assert answer.dropped == 2
