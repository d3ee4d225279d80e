"""A value of whatever type, at whatever key, is a wrong setting and never a defect of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from sfn.settings import validation_errors
from sfn.settings.model import Settings
from sfn.settings.sources import SettingsSources

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
def test_a_value_is_taken_or_complained_about_at_every_key(value: object) -> None:
    places = list(keys(Settings))
    assert {("worker", "lease"), ("catalogs", "made-up", "ca_file"), ("senders", "made-up", "secrets")} <= set(places)
    assert all(problem for place in places for problem in problems(tables(place, value)))


def problems(said: Mapping[str, object]) -> list[str]:
    try:
        Settings.model_validate(said)
    except ValidationError as error:
        return [str(problem) for problem in validation_errors(error, SettingsSources(said, "sfn.toml", {}))]
    return []
