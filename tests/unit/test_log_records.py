"""Log records name things as commands take them, and have messages that an operator can search for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from sfn.cli.options import parse_table_name
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.telemetry.logs import key_fields
from tests.shape.wording import syntax_tree

PACKAGE: Final = Path(__file__).parents[2] / "service" / "sfn"
METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
UNNAMED: Final = {"name": "catalog, store, gateway, sender or source", "subject": "catalog and table", "id": "its kind"}
MESSAGE: Final = re.compile(r"(TLS |SFN )?[a-z][A-Za-z :,]*[a-z]")
MAX_MESSAGE: Final = 80


def violations(source: str, where: str) -> Iterator[str]:
    """Yield what is wrong with the calls of `_log` in a module."""
    for node in ast.walk(syntax_tree(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if ast.unparse(node.func.value) != "_log" or node.func.attr not in METHODS:
            continue
        at = f"{where}:{node.lineno}"
        for text in messages(node.args[-1]):
            if MESSAGE.fullmatch(text) is None or len(text) > MAX_MESSAGE:
                yield f"{at}: a message to search for, not {text!r}"
        for field in node.keywords:
            yield from (f"{at}: {field.arg}: {text}" for text in wrong_field(field))


def wrong_field(field: ast.keyword) -> Iterator[str]:
    """Yield what is wrong with a field."""
    if field.arg in UNNAMED:
        yield f"name {UNNAMED[field.arg]}"
    for part in ast.walk(field.value):
        match part:
            case ast.Attribute(attr="dotted"):
                yield "str() of a table, which has its catalog"
            case ast.Call(func=ast.Name(id="repr")):
                yield "no repr()"
            case ast.FormattedValue(conversion=114):
                yield "no !r"
            case _:
                pass


def messages(node: ast.expr) -> list[str]:
    """Return the texts of a message; each part of an f-string that is not constant is `x`."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp():
            return [*messages(node.body), *messages(node.orelse)]
        case ast.JoinedStr():
            return ["".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)]
        case _:
            return []


def test_every_record_can_be_searched_and_pasted() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    found = [text for file in files for text in violations(file.read_text(), str(file.relative_to(PACKAGE)))]
    assert found == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ('_log.info("Done.")', "a message to search for, not 'Done.'"),
        ('_log.log(level, f"{scope} is away!")', "a message to search for, not 'x is away!'"),
        ('_log.info("settled", subject=str(one))', "subject: name catalog and table"),
        ('_log.info("settled", name=one)', "name: name catalog, store"),
        ('_log.info("settled", table=one.dotted)', "table: str() of a table"),
        ('_log.info("settled", tables=[one.dotted for one in all])', "tables: str() of a table"),
        ('_log.info("settled", error=repr(error))', "error: no repr()"),
        ('_log.info("settled", error=f"{error!r}")', "error: no !r"),
    ],
)
def test_a_violation_is_found(call: str, said: str) -> None:
    (found,) = violations(call, "module.py")
    assert found.startswith("module.py:1: ")
    assert said in found


@pytest.mark.parametrize(("namespace", "name"), [(("sales",), "orders"), (("a.b", "c%d"), "e.f"), (("x:y",), "z")])
def test_the_table_of_a_record_is_an_argument_of_commands(namespace: tuple[str, ...], name: str) -> None:
    fields = key_fields(TableIdentifier("prod", namespace, name))
    typed = parse_table_name(fields["table"] or "")
    assert (fields["catalog"], typed.catalog, typed.namespace, typed.name) == ("prod", "prod", namespace, name)


def test_the_record_of_a_catalog_has_no_table() -> None:
    assert key_fields(CatalogName("prod")) == {"catalog": "prod", "table": None}
