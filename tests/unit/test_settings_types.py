"""Durations, sizes and values of a wrong type in settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from sfn.settings import validation_errors
from sfn.settings.root import Settings
from sfn.settings.sources import SettingsSources
from sfn.settings.types import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        *(("500ms", 500), ("30s", 30_000), ("1.5s", 1500), ("10m", 600_000), ("72h", 259_200_000)),
        *(("7d", 604_800_000), ("0s", 0), ("0", 0), ("2 s", 2000)),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == timedelta(milliseconds=milliseconds)


def test_nothing_needs_no_unit() -> None:
    assert parse_duration(0) == timedelta()


@pytest.mark.parametrize("text", ["36500d", "876000h", "52560000m"])
def test_a_duration_is_a_hundred_years_at_most(text: str) -> None:
    assert parse_duration(text) == timedelta(days=36_500)


@pytest.mark.parametrize("text", ["36500.001d", "876001h", "999999999d", "999999999.999999999d"])
def test_a_longer_one_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="a duration of at most 36500d"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "30", 31, 1.5, "s", "-1s", "1S", "1w", "1h30m", "1e3s", "٣s", "1s\n", "9" * 10 + "d"),
        *(None, True, False, ["30s"], {"a": 1}),
    ],
)
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match="a duration such as 30s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("1B", 1), ("64KiB", 65_536), ("1MiB", 1_048_576), ("2GiB", 2_147_483_648), ("1kB", 1000), ("1.5KiB", 1536)],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "1", 2, "1mib", "1M", "-1B", "1.5B", "0.3KiB", "1MiB ", None, ["1MiB"], {"a": 1}])
def test_no_sizes(text: object) -> None:
    with pytest.raises(ValueError, match=r"a size such as 1MiB|whole number of bytes"):
        parse_size(text)


PLAIN = (0, -1, 10**30, 1.5, float("nan"), True, date(2026, 8, 21), time(12), "", "x", "[", "[1, {}]")
VALUES: tuple[object, ...] = (*PLAIN, [], ["30s"], [[]], {}, {"a": 1}, {"a": ["b"]})


def keys(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key, and every table by a made-up name."""
    for name, field in model.model_fields.items():
        parts = [*get_args(field.annotation), field.annotation]
        inner = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
        place = (*above, name, "made-up") if len(parts) > 1 and inner is not None else (*above, name)
        yield place
        if inner is not None:
            yield from keys(inner, place)


def tables(place: tuple[str, ...], value: object) -> Mapping[str, object]:
    for key in reversed(place):
        value = {key: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_value_is_accepted_or_reported_at_every_key(value: object) -> None:
    places = list(keys(Settings))
    assert {("worker", "lease"), ("catalogs", "made-up", "ca_file"), ("senders", "made-up", "secrets")} <= set(places)
    assert all(problem for place in places for problem in problems(tables(place, value)))


def problems(said: Mapping[str, object]) -> list[str]:
    try:
        Settings.model_validate(said)
    except ValidationError as error:
        return [str(problem) for problem in validation_errors(error, SettingsSources(said, "sfn.toml", {}))]
    return []
