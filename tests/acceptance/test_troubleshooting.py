"""The literal messages that the page for troubleshooting lists: ours are in the code, and readers say theirs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import duckdb
import polars as pl
import pytest
from pyiceberg.table import StaticTable

import sfn
from sfn.demo.lake import duckdb_for_iceberg
from tests.shape.wording import syntax_tree
from tests.support.real_table import RealTable, real_table

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "operate" / "troubleshooting.md").read_text()
GONE: Final = "00099-0b5c"
"""The name of a metadata file that is not there."""


def messages(after: str, before: str) -> list[str]:
    """Return the code in the first column of a table."""
    rows = PAGE.partition(after)[2].partition(before)[0].splitlines()
    return [code for row in rows if row.startswith("| `") for code in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


OURS: Final = messages("Messages of the listener and of `sfn`", "Messages of others")
THEIRS: Final = messages("Messages of others", "## Find a symptom")


def texts() -> str:
    """Return every text of the package, one a line; values within them are `…`."""
    found = []
    for module in Path(sfn.__file__).parent.rglob("*.py"):
        for node in ast.walk(syntax_tree(module.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_messages_of_ours_are_in_the_code() -> None:
    known = texts()
    assert len(OURS) > 20
    parts = {part.strip(": ") for message in OURS for part in message.split("…")}
    # The field and the word before a text are put together as an error is printed.
    wanted = {re.sub(r"^expected |, found$|, found none$|, found neither$|, found that$", "", part) for part in parts}
    assert {part for part in wanted if part and part not in known} == set()


def test_every_message_leads_to_a_section_that_has_it() -> None:
    sections = {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): text
        for title, text in re.findall(r"^###? (.+?)\n(.*?)(?=^###? |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    }
    table = PAGE.partition("## Find a symptom")[0]
    rows = re.findall(r"^\| (`.+?) \|.*\[[^\]]+\]\(#([^)]+)\) \|$", table, re.MULTILINE)
    assert len(rows) > 30
    for codes, section in rows:
        for code in re.findall(r"`([^`]+)`", codes):
            words = [part.strip() for part in code.split("…") if part.strip()]
            assert all(word in " ".join(sections[section].split()) for word in words), (code, section)


@pytest.fixture(name="table", scope="module")
def fixture_table(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    """A table without a version hint."""
    return real_table(tmp_path_factory.mktemp("lake"))


def by_duckdb(directory: str) -> object:
    return duckdb_for_iceberg().execute(f"FROM iceberg_scan('{directory}')").fetchall()


def by_polars(directory: str) -> object:
    return pl.scan_iceberg(directory).collect()


def by_pyiceberg(directory: str) -> object:
    return StaticTable.from_metadata(directory).scan().to_arrow()


def by_clickhouse(
    directory: str, arguments: str = ", SETTINGS iceberg_use_version_hint = 1", after: str = ""
) -> object:
    """It is slow to load, and never leaves a process again."""
    query = f"SELECT * FROM icebergLocal('{directory}'{arguments}) {after}"  # noqa: S608 - it is ours
    code = f"import chdb; print(chdb.query({query!r}, 'CSV'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("read", [by_duckdb, by_polars, by_pyiceberg, by_clickhouse])
def test_readers_say_what_the_page_says(table: RealTable, read: Callable[[str], object]) -> None:
    hint = Path(table.directory.removeprefix("file://"), "metadata", "version-hint.text")
    hint.unlink(missing_ok=True)
    for content in (None, GONE):
        if content is not None:
            hint.write_text(content)
        with pytest.raises(Exception, match=r".") as refused:
            read(table.directory)
        assert any(is_said(message, str(refused.value)) for message in THEIRS), refused.value
    hint.unlink()


@pytest.mark.slow
def test_clickhouse_refuses_its_setting_elsewhere(table: RealTable) -> None:
    with pytest.raises(RuntimeError) as refused:
        by_clickhouse(table.directory, "", "SETTINGS iceberg_use_version_hint = 1")
    assert "Unknown setting 'iceberg_use_version_hint'" in THEIRS
    assert "Unknown setting 'iceberg_use_version_hint'" in str(refused.value)


def test_duckdb_refuses_what_the_page_says() -> None:
    connection = duckdb_for_iceberg()
    for statement, message in (
        ("FROM iceberg_scan(NULL::VARCHAR[])", "iceberg_scan cannot take NULL list as parameter"),
        ("ATTACH '' AS s (TYPE iceberg, ENDPOINT 'http://127.0.0.1:9')", "AUTHORIZATION_TYPE is 'oauth2', yet no"),
    ):
        with pytest.raises(duckdb.Error, match=re.escape(message)):
            connection.execute(statement)
        assert any(one.startswith(message) for one in THEIRS)


def is_said(message: str, said: str) -> bool:
    """Return whether a text has the parts of a message in their order."""
    return re.search(".+".join(re.escape(part) for part in message.split("…")), said, re.DOTALL) is not None
