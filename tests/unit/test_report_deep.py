"""What is missing of a table's files is one thing, what nobody could look at another."""

from __future__ import annotations

from pathlib import Path

from sfn.audit import slices
from sfn.domain.identifiers import Table, TableIdentifier

NAME = TableIdentifier("prod", ("ns",), "orders")


def table(location: str) -> Table:
    return Table("u1", location, f"{location}/metadata/00001-a.metadata.json")


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    missing, unseen = slices.find_missing_files(NAME, table(tmp_path.as_uri()), (), {})
    assert "00001-a.metadata.json" in missing
    assert unseen == ""


def test_a_store_that_does_not_answer_is_missing_nothing() -> None:
    quick = {"retries": {"max_attempts": 0}, "connect_timeout": 1}
    options = {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:9", "config_kwargs": quick}
    missing, unseen = slices.find_missing_files(NAME, table("s3://bucket/orders"), (), options)
    assert missing == ""
    assert "expected a store that answers, found EndpointConnectionError" in unseen
