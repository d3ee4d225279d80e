"""Why a table is not under management, or not as it was asked for; and what other libraries say in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sfn.errors import SfnError

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What a statement fails with."""


class Unmanageable(SfnError):
    """A table can't be brought under management as asked. It is as it was."""


class HalfManaged(SfnError):
    """A table is under management, but not all that was asked for is done; the remedy leads on, and back."""


@contextmanager
def map_unmanageable(where: str, *, expected: str, remedy: str = "") -> Iterator[None]:
    """Refuse a table by what Spark says of it, before anything is changed."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise Unmanageable(where, expected=expected, found=error_summary(error), remedy=remedy) from error


def error_summary(error: Exception) -> str:
    """What an error says, without the stack of the JVM and the query's plan."""
    if isinstance(error, Py4JJavaError):
        kind, _, text = str(error.java_exception.toString()).partition(": ")
        return f"{kind.rpartition('.')[2]}: {_line(text)}"
    return _line(str(error))


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "nothing more").rstrip(".")
