"""`import sfn`: what a notebook gets."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sfn
from sfn import errors

HEAVY = ("fastapi", "uvicorn", "aiohttp", "structlog", "pydantic", "typer", "fsspec", "pyarrow", "pyiceberg")


def test_the_names_are_these() -> None:
    assert sorted(sfn.__all__) == [
        "Ambiguous",
        "CommitNotFound",
        "DirectoryNotFound",
        "Dropped",
        "HistoryEntry",
        "MalformedDocument",
        "MalformedMetadata",
        "NameTaken",
        "NotFound",
        "NotInstalled",
        "NotPermitted",
        "NotRelative",
        "NotSupported",
        "RefNotFound",
        "Resolved",
        "SfnError",
        "Stale",
        "TooManyFiles",
        "TooManyHops",
        "UnknownFormatVersion",
        "Unreachable",
        "Unreadable",
        "Unsafe",
        "WrongTable",
        "ahistory",
        "aread",
        "aresolve",
        "history",
        "read",
        "resolve",
    ]
    assert set(sfn.__all__) <= set(dir(sfn))
    assert all(getattr(sfn, name).__name__ == name for name in sfn.__all__)


def test_every_refusal_of_the_reader_is_among_them() -> None:
    refusals = {refusal for first in errors.Unreadable.__subclasses__() for refusal in (first, *first.__subclasses__())}
    assert {refusal.__name__ for refusal in refusals} < set(sfn.__all__)


@pytest.mark.parametrize("name", ["ExternalError", "annotations_of_nothing"])
def test_another_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'sfn' has no attribute '{name}'"):
        getattr(sfn, name)


@pytest.mark.parametrize(
    "code", ["import sfn", "import sfn; sfn.resolve; sfn.aread; sfn.history; sfn.Resolved; sfn.Stale"]
)
def test_importing_brings_no_server(code: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print([name for name in {HEAVY!r} if name in sys.modules])"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout.strip() == "[]"
