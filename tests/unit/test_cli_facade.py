"""What `sfn facade` is told that makes no sense."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfn.cli.facade import canonical_root
from sfn.cli.main import app


@pytest.mark.parametrize("root", ["s3://bucket", "s3://bucket/", "gs://bucket/lake", "memory://lake"])
def test_a_root_may_be_a_whole_bucket(root: str) -> None:
    assert canonical_root(root) == root.rstrip("/")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "ROOT"),
        (["{folder}/none"], "a folder with tables below it"),
        (["{folder}/file"], "a folder with tables below it"),
        (["{folder}", "{folder}/none"], "a folder with tables below it"),
        (["local://{folder}"], "a path or a file: URL"),
        (["/"], "the whole machine"),
        (["s3:///warehouse"], "a bucket or container"),
        ([""], "a path or a URL of a directory"),
        (["s3://bucket/%2e%2e/x"], "encoded separator"),
        (["{folder}", "--tls-key", "{folder}/file"], "must be passed together"),
        (["{folder}", "--tls-certificate", "{folder}/file"], "must be passed together"),
        (["{folder}", "--metadata-limit", "much"], "found 'much'"),
        (["{folder}", "--log-level", "loud"], "found 'loud'"),
        (["{folder}", "--port", "70000"], "65535"),
        (["{folder}", "--storage-option", "@{folder}/file"], "JSON"),
    ],
)
def test_what_makes_no_sense_is_told_before_it_listens(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "file").touch()
    told = CliRunner().invoke(app, ["facade", *(one.format(folder=tmp_path) for one in arguments)])
    plain = " ".join(re.sub(r"\x1b\[[0-9;]*m|│", " ", told.output).split())
    assert (told.exit_code, said in plain) == (2, True), told.output
