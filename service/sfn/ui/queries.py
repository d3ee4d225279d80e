"""Queries of pages: the filled fields of a form, addresses with a query, and the result of an order in an address."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from sfn.http.app import describe_errors

_MAX_DIGITS: Final = 9
"""The most digits of a number in the result of an order."""

M = TypeVar("M", bound=BaseModel)


def filled(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that are not empty: a form sends all of its fields."""
    return {name: text for name, value in fields.items() if (text := value.strip())}


def address(path: str, fields: Mapping[str, object | None]) -> str:
    """Return an address with a query of the fields that have a value."""
    query = urlencode({name: value for name, value in fields.items() if value is not None})
    return f"{path}?{query}" if query else path


def parse_fields(model: type[M], fields: Mapping[str, Any]) -> M:
    """Return a model of those of the fields that it knows.

    Raises:
        HTTPException: 422: a field is wrong.
    """
    try:
        return model.model_validate({name: value for name, value in fields.items() if name in model.model_fields})
    except ValidationError as error:
        text = describe_errors([dict(one) for one in error.errors()])
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, text) from None


def number_in(fields: Mapping[str, str], name: str) -> int:
    """Return a number in the result of an order; 0 if there is none. The page never shows other text of an address."""
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
