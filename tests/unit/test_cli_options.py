"""Values of options: durations, sizes, and options of drivers as `KEY=VALUE` or in a file."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from sfn.cli.options import parse_duration, parse_report_options, parse_size, parse_storage_options, split_catalog


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, {}),
        (["anon=true", "timeout=5", "key=abc"], {"anon": True, "timeout": 5, "key": "abc"}),
        (['client_kwargs={"endpoint_url": "http://s3"}'], {"client_kwargs": {"endpoint_url": "http://s3"}}),
        (['key="007"', "secret=a=b", "empty="], {"key": "007", "secret": "a=b", "empty": ""}),
        (["key=first", "@{file}", "anon=false"], {"key": "in the file", "anon": False}),
    ],
)
def test_the_value_of_a_storage_option_is_json_or_text(
    tmp_path: Path, given: list[str] | None, found: dict[str, Any]
) -> None:
    file = tmp_path / "options.json"
    file.write_text(json.dumps({"key": "in the file", "anon": True}))
    typed = given and [text.replace("{file}", str(file)) for text in given]
    assert parse_storage_options(typed) == found


def test_the_value_of_a_report_option_is_text(tmp_path: Path) -> None:
    file = tmp_path / "options.json"
    file.write_text('{"s3.anonymous": true, "s3.region": "eu"}')
    found = parse_report_options(["s3.timeout=5", f"@{file}"])
    assert found == {"s3.timeout": "5", "s3.anonymous": "true", "s3.region": "eu"}


@pytest.mark.parametrize("text", ["", "s3cret", "=s3cret", "@/absent", "@/dev/null"])
def test_an_option_that_is_no_pair_is_not_repeated(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="JSON object") as caught:
        parse_storage_options([text])
    assert "s3cret" not in str(caught.value)


def test_durations_and_sizes_have_units() -> None:
    assert (parse_duration("5m"), parse_size("64MiB")) == (timedelta(minutes=5), 64 << 20)
    for parse in (parse_duration, parse_size):
        with pytest.raises(typer.BadParameter, match="found '5 parsecs'"):
            parse("5 parsecs")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("prod:sales.orders", ("prod", "sales.orders")),
        ("sales.orders", (None, "sales.orders")),
        ("x%3Ay.z", (None, "x%3Ay.z")),
        ("prod:x:y.z", ("prod", "x:y.z")),
    ],
)
def test_a_name_may_begin_with_its_catalog(text: str, parts: tuple[str | None, str]) -> None:
    assert split_catalog(text) == parts
