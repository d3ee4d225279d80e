"""The options of the data sources `sfn` and `sfn-log`, and Spark's filters as PyIceberg's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

from pyiceberg import expressions as iceberg
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import datasource as spark

from sfn.errors import suggest_name
from sfn.spark.request import ReadRequest, make_read_request

PATH: Final = "path"
"""Spark's name for the argument of `load`."""

STORAGE: Final = "secretStorageOptions"
"""Options for fsspec's driver. Spark shows an option in plans and in its event log, unless its name marks a secret
(`spark.redaction.regex`)."""

_TABLE: Final = ("table", "uuid", "allowed", STORAGE)
"""Options of both sources."""
_SNAPSHOT_ID: Final = re.compile(r"\d+")


class SourceOptions:
    """The options of one read, by name; names are case-insensitive.

    Args:
        given: the options from Spark.
        known: the names of the source's own options, in addition to the common ones.
        source: the source's name, for messages.

    Raises:
        ValueError: an option is unknown; the message names the nearest.
    """

    def __init__(self, given: Mapping[str, str], known: Sequence[str], source: str) -> None:
        self._source = source
        names = {name.lower(): name for name in (PATH, *_TABLE, *known)}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in names:
                near = suggest_name(name, list(names))
                raise ValueError(f"an option of format({source!r}): {name!r} is none; {_cased(near, names)}")
            self._values[names[name.lower()]] = value

    def get(self, name: str) -> str | None:
        """Return the value of an option; None if it was not given."""
        return self._values.get(name)

    @property
    def directory(self) -> str:
        """The argument of `load`.

        Raises:
            ValueError: it is missing.
        """
        path = self.get(PATH)
        if not path:
            raise ValueError(f"a table's directory: spark.read.format({self._source!r}).load(directory)")
        return path

    def names(self, option: str) -> tuple[str, ...]:
        """Return the names in an option: separated by commas, or a JSON array if a name has a comma.

        Raises:
            ValueError: the list is not valid, or empty.
        """
        text = (self.get(option) or "").strip()
        names = _json(option, text, list) if text.startswith("[") else [name.strip() for name in text.split(",")]
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"option {option}: names separated by commas, or a JSON array of them: {text!r}")
        return tuple(names)

    def flag(self, option: str, *, default: bool) -> bool:
        """Return whether an option is `true`.

        Raises:
            ValueError: it is neither `true` nor `false`.
        """
        text = self.get(option)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise ValueError(f"option {option}: true or false: {text!r}")
        return text.lower() == "true"

    @property
    def request(self) -> ReadRequest:
        """The request for a table.

        Raises:
            ValueError: an option is not valid.
        """
        as_of = self.get("asOf")
        storage = self.get(STORAGE)
        return make_read_request(
            self.directory,
            self.get("table"),
            self.get("uuid"),
            self.get("ref"),
            None if as_of is None else _as_of(as_of),
            allowed=self.names("allowed") if self.get("allowed") is not None else (),
            storage_options=None if storage is None else _json(STORAGE, storage, dict),
        )


def _as_of(text: str) -> int | str:
    """Convert digits to a snapshot's id, as `sfn.spark.read` takes it."""
    return int(text) if _SNAPSHOT_ID.fullmatch(text) else text


def _json(option: str, text: str, kind: type) -> Any:  # noqa: ANN401 - any JSON
    expected = f"a JSON {'object' if kind is dict else 'array'}"
    try:
        value = json.loads(text)
    except ValueError as error:
        # The text may hold secrets.
        raise ValueError(f"option {option}: {expected}, as json.dumps writes it: {error}") from None
    if not isinstance(value, kind):
        raise ValueError(f"option {option}: {expected}, not {type(value).__name__}")
    return value


def _cased(text: str, names: Mapping[str, str]) -> str:
    """Return a text in which the names are written as documented."""
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)


_ORDERED: Final = (
    BooleanType,
    IntegerType,
    LongType,
    DateType,
    TimestampType,
    TimestamptzType,
    StringType,
    DecimalType,
)
"""Types that Arrow and Spark compare alike. Not so uuids (strings in Spark), binary (no order in Arrow), and NaN."""
_FLOATING: Final = (FloatType, DoubleType)

_Value: TypeAlias = Any
"""A value that Spark compares a column with."""


def to_iceberg_filter(filters: Iterable[spark.Filter], schema: Schema) -> iceberg.BooleanExpression:
    """Return an expression that is true for every row that passes all filters."""
    which: iceberg.BooleanExpression = iceberg.AlwaysTrue()
    for one in filters:
        what = _of(one, schema)
        if what is not None and _fits(what, schema):
            which = iceberg.And(which, what)
    return which


def _of(one: spark.Filter, schema: Schema) -> iceberg.BooleanExpression | None:
    if isinstance(one, spark.Not):
        # In Spark NaN is greater than every number, and `<=>` is never NULL.
        is_exact = not isinstance(one.child, spark.EqualNullSafe) and not _is_floating(one.child, schema)
        inner = _of(one.child, schema) if is_exact else None
        return None if inner is None else iceberg.Not(inner)
    kind = _type(one, schema)
    if kind is None:
        return None
    column = iceberg.Reference(_name(one))
    match one:
        case spark.IsNull():
            return iceberg.IsNull(term=column)
        case spark.IsNotNull():
            return iceberg.NotNull(term=column)
        case spark.EqualNullSafe(value=None):
            return iceberg.IsNull(term=column)
        case _:
            pass
    value = getattr(one, "value", None)
    if isinstance(kind, _FLOATING):
        return _of_floating(one, column, value)
    return _of_ordered(one, column, value) if isinstance(kind, _ORDERED) and value is not None else None


def _of_ordered(one: spark.Filter, column: iceberg.Reference, value: _Value) -> iceberg.BooleanExpression | None:
    match one:
        case spark.EqualTo() | spark.EqualNullSafe():
            return iceberg.EqualTo(term=column, value=literal(value))
        case spark.GreaterThan():
            return iceberg.GreaterThan(term=column, value=literal(value))
        case spark.GreaterThanOrEqual():
            return iceberg.GreaterThanOrEqual(term=column, value=literal(value))
        case spark.LessThan():
            return iceberg.LessThan(term=column, value=literal(value))
        case spark.LessThanOrEqual():
            return iceberg.LessThanOrEqual(term=column, value=literal(value))
        case spark.In():
            values = [each for each in value if each is not None]
            return iceberg.In(term=column, values=set(map(literal, values))) if len(values) == len(value) else None
        case spark.StringStartsWith():
            return iceberg.StartsWith(term=column, value=literal(value))
        case _:
            return None


def _of_floating(one: spark.Filter, column: iceberg.Reference, value: _Value) -> iceberg.BooleanExpression | None:
    if not isinstance(value, float | int | Decimal) or value != value:  # noqa: PLR0124 - NaN alone differs from itself
        return None
    match one:
        case spark.EqualTo() | spark.EqualNullSafe() | spark.LessThan() | spark.LessThanOrEqual():
            return _of_ordered(one, column, value)
        # In Spark NaN is greater than every number, but statistics of files ignore NaN.
        case _:
            return None


def _name(one: spark.Filter) -> str:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _type(one: spark.Filter, schema: Schema) -> IcebergType | None:
    """Return the type of a filter's column; None for a nested column, or a name that could be such a path."""
    name = _name(one)
    if "." in name:
        return None
    return next((field.field_type for field in schema.fields if field.name == name), None)


def _is_floating(one: spark.Filter, schema: Schema) -> bool:
    return isinstance(_type(one, schema), _FLOATING) and not isinstance(one, spark.IsNull | spark.IsNotNull)


def _fits(what: iceberg.BooleanExpression, schema: Schema) -> bool:
    """Return whether the expression's values fit the types of its columns."""
    try:
        bind(schema, what, case_sensitive=True)
    except (ValueError, TypeError):
        return False
    return True
