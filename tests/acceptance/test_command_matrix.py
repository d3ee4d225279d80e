"""Each command beside one running service: its text, its JSON with the documented keys, and its exit codes.

`test_command_line.py` tests the help of each command, and `tests/unit/test_cli_style.py` the style of all options.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.pages.json_keys import JSON_KEYS, MORE_JSON_KEYS
from tests.support.command_line import Place, forked, on_terminal, place, sfn
from tests.support.real_table import real_table
from tests.unit.test_cli_style import tree, walk

AWAY: Final = "--url http://127.0.0.1:1"
BLOCKED: Final = ("kept", "replayed", "replayed_json", "discarded", "discarded_json")
SPARK: Final = "tests/spark/test_audit_command.py"
NEW: Final = "--uri http://127.0.0.1:8181 --store /lake"


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one command. A cell is the arguments and a pattern, or the reason why there is none.

    Attributes:
        text: ends with 0; the pattern is of standard output.
        json: the arguments before `--json`; ends with 0, or with 1 for a finding.
        failed: ends with 1; the pattern is of standard error, or of standard output for a finding.
        wrong: ends with 2; the pattern is of standard error.
    """

    text: tuple[str, str] | str
    json: tuple[str] | str
    failed: tuple[str, str] | str
    wrong: tuple[str, str] | str


CELLS: Final[Mapping[str, Cells]] = {
    "init": Cells(
        (f"{{tmp}}/new.toml {NEW}", "wrote .*new.toml"),
        "prints no result",
        (f"{{tmp}}/absent/sfn.toml {NEW}", "expected a file that can be written"),
        (f"{{config}} {NEW}", "pass --force"),
    ),
    "config show": Cells(
        ("--config {config}", "# file: .*sfn.toml"),
        ("--config {config}",),
        "reads nothing but the configuration",
        ("--config {tmp}/absent.toml", "absent.toml"),
    ),
    "serve": Cells(
        "the service of this module",
        "prints no result",
        ("--config {config}", "stop that process"),
        ("--config {config} --roles cook", "--roles: expected some of"),
    ),
    "check": Cells(
        ("--config {config}", "passed: no errors"),
        ("--config {config}",),
        ("--config {broken}", "error +catalogs"),
        ("--config {config} --roles", "requires an argument"),
    ),
    "facade": Cells(
        "tests/integration/test_facade_process.py",
        "prints no result",
        "tests/integration/test_facade_process.py",
        ("{tmp}/absent", "absent: expected a folder"),
    ),
    "demo": Cells(
        "tests/acceptance/test_demo.py",
        "prints no result",
        ("--java /absent/java", "/absent/java"),
        ("more", "unexpected extra argument"),
    ),
    "demo-catalog": Cells(
        "tests/acceptance/test_demo.py",
        "prints no result",
        "tests/acceptance/test_demo.py",
        ("{tmp}/lake --port 65536", "--port"),
    ),
    "resolve": Cells(
        ("{table}", r"file:\S+metadata.json$"),
        ("{table}",),
        ("{tmp}/absent", "found no such directory"),
        ("{table} --storage-option anon", "expected KEY=VALUE, or @FILE"),
    ),
    "history": Cells(
        ("{table}", "ORDINAL +SNAPSHOT"),
        ("{table}",),
        ("{tmp}/absent", "found no such directory"),
        ("{table} --limit 0", "--limit"),
    ),
    "inspect": Cells(
        ("{table}", "SFN file .*\n"),
        ("{table}",),
        ("{tmp}/absent", "found no such directory"),
        ("{table} --as-of yesterday", "--as-of"),
    ),
    "verify": Cells(
        ("{table}", "ok +"),
        ("{table}",),
        ("{tmp}/absent", "wrong +"),
        ("{table} --config {tmp}/absent.toml", "absent.toml"),
    ),
    "status": Cells(
        ("", "CATALOG +TABLES"),
        ("",),
        ("prod:sales.unknown", "expected a table that the service knows"),
        ("sales.", "expected|an identifier"),
    ),
    "tables": Cells(
        ("'sales.*'", "TABLE +STATE"),
        ("",),
        ("--dead --exit-code", "prod:sales.kept +dead"),
        ("--limit 0", "--limit"),
    ),
    "audit-log": Cells(
        ("--limit 5", "ID +TIME +ACTOR|^$"),
        ("",),
        (AWAY, "expected a running service"),
        ("--limit 0", "--limit"),
    ),
    "audit run": Cells(SPARK, SPARK, SPARK, ("", "--report")),
    "audit report": Cells(SPARK, SPARK, ("{tmp}/absent", "expected"), ("{tmp} --report-option s3", "KEY=VALUE")),
    "healthcheck": Cells(
        ("", "^$"), "prints no result", (AWAY, "expected an answer"), ("more", "unexpected extra argument")
    ),
    "notify": Cells(
        ("sales.orders", "accepted and stored"),
        ("sales.orders",),
        ("sales.unknown --wait", "the catalog has no such table"),
        ("sales.orders --timeout 5s", "--timeout needs --wait"),
    ),
    "reconcile": Cells(
        ("--no-wait", "sweep requested: prod"),
        ("--dry-run --config {config}",),
        ("--dry-run --config {config}", r"prod: \d+ tables, \d+ differ"),
        ("--catalog prd", "did you mean prod"),
    ),
    "dead-letters list": Cells(
        ("--table prod:sales.kept", "foreign-file"),
        ("",),
        (AWAY, "expected a running service"),
        ("--catalog prd", "did you mean prod"),
    ),
    "dead-letters show": Cells(
        ("{kept}", "dead letter {kept}: foreign-file, open"),
        ("{kept}",),
        ("4711", "dead letter 4711: expected an id"),
        ("", "ID"),
    ),
    "dead-letters replay": Cells(
        ("{replayed}", "queued 1 of 1"),
        ("{replayed_json}",),
        ("4711", "there is no dead letter 4711"),
        ("--reason foreign-file", "Pass --yes"),
    ),
    "dead-letters discard": Cells(
        ("{discarded}", "discarded 1 of 1"),
        ("{discarded_json}",),
        ("4711", "there is no dead letter 4711"),
        ("--all --reason poison", "pass only one of"),
    ),
    "release": Cells(
        ("prod --yes", "prod: 0 tables released"),
        ("prod --yes",),
        (f"prod --yes {AWAY}", "expected a running service"),
        ("prod", "Pass --yes"),
    ),
    "adopt": Cells(
        ("prod sales.orders --from {owner} --yes", "prod: 1 table queued"),
        ("prod sales.orders --from {owner} --yes",),
        ("prod sales.unknown --from {owner} --yes", "knows no table"),
        ("prd --from {owner} --yes", "did you mean prod"),
    ),
    "retire": Cells(
        ("prod --undo", "prod: not retired any more"),
        ("prod --undo",),
        (f"prod --yes {AWAY}", "expected a running service"),
        ("prod", "Pass --yes"),
    ),
}

COMMANDS: Final = dict(walk(tree()))


@dataclass(frozen=True, slots=True)
class Ground:
    """The running service, and the words for the places of the arguments."""

    here: Place
    words: Mapping[str, str]

    async def run(self, command: str, arguments: str, *more: str) -> tuple[int, str, str]:
        """Run a command; one that talks to the service gets its address."""
        typed = [*command.split(), *shlex.split(arguments.format_map(self.words)), *more]
        has_url = any("--url" in one.opts for one in COMMANDS[command].params)
        if has_url and "--url" not in typed and "--dry-run" not in typed:
            typed += ["--url", self.here.url]
        if has_url and "--config" not in typed:
            typed += ["--config", str(self.here.configuration)]
        done = await sfn(*typed)
        return done.status, done.out, done.err


@pytest.fixture(name="ground", scope="module")
async def fixture_ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Ground]:
    folder = tmp_path_factory.mktemp("matrix")
    async with place(folder, more='[sweep]\nevery = "off"\n') as here:
        await here.publish("orders")
        for name in BLOCKED:
            here.block(name)
        letters = {name: str(await here.letter(name)) for name in BLOCKED}
        owner = (await here.sfn("status", "--json")).json["catalogs"][0]["catalog_id"]
        broken = folder / "broken.toml"
        text = here.configuration.read_text().replace(here.lake.uri, "http://127.0.0.1:1")
        broken.write_text(text.replace(f"{folder}/inbox/", f"{folder}/other/"))
        table = real_table(tmp_path_factory.mktemp("real")).directory
        words = {"config": str(here.configuration), "broken": str(broken), "owner": owner, "table": table}
        yield Ground(here, {**words, **letters, "tmp": str(tmp_path_factory.mktemp("made"))})


def cells(column: str) -> list[pytest.ParameterSet]:
    """Return the cells of a column that are tested here."""
    found = [(command, getattr(row, column)) for command, row in CELLS.items()]
    return [pytest.param(command, cell, id=command) for command, cell in found if not isinstance(cell, str)]


def test_each_command_has_a_row() -> None:
    assert set(CELLS) == set(COMMANDS)
    reasons = [cell for row in CELLS.values() for cell in (row.text, row.json, row.failed, row.wrong)]
    for reason in reasons:
        if isinstance(reason, str) and reason.startswith("tests/"):
            assert Path(__file__).parents[2].joinpath(reason).exists()


@pytest.mark.parametrize(("command", "cell"), cells("text"))
async def test_text_goes_to_standard_output(ground: Ground, command: str, cell: tuple[str, str]) -> None:
    status, out, err = await ground.run(command, cell[0])
    assert status == 0, (out, err)
    assert re.search(cell[1].replace("{kept}", ground.words["kept"]), out, re.MULTILINE), (out, err)


@pytest.mark.parametrize(("command", "cell"), cells("json"))
async def test_json_is_one_document_with_the_documented_keys(ground: Ground, command: str, cell: tuple[str]) -> None:
    status, out, err = await ground.run(command, cell[0], "--json")
    assert status in {0, 1}, err
    assert tuple(json.loads(out)) == JSON_KEYS[command]


@pytest.mark.parametrize(("command", "cell"), cells("failed"))
async def test_a_failure_or_a_finding_ends_with_1(ground: Ground, command: str, cell: tuple[str, str]) -> None:
    status, out, err = await ground.run(command, cell[0])
    assert status == 1, (out, err)
    assert re.search(cell[1], out + err, re.MULTILINE), (out, err)
    assert "Traceback" not in err


@pytest.mark.parametrize(("command", "cell"), cells("wrong"))
async def test_wrong_usage_ends_with_2_and_prints_no_result(
    ground: Ground, command: str, cell: tuple[str, str]
) -> None:
    status, out, err = await ground.run(command, cell[0])
    assert (status, out) == (2, ""), err
    assert re.search(cell[1], " ".join(re.sub("[│╭╮╰╯─]", " ", err).split())), err


@pytest.mark.parametrize(
    ("command", "arguments", "keys"),
    [
        ("dead-letters list", "--by-cause", {"causes", "letters", "has_more"}),
        ("notify", "sales.orders --wait", {*JSON_KEYS["notify"], "tables"}),
        ("reconcile", "--no-wait", {"catalogs", "requested_at", "starts_at"}),
    ],
)
async def test_other_forms_of_json_have_the_documented_keys(
    ground: Ground, command: str, arguments: str, keys: set[str]
) -> None:
    status, out, _ = await ground.run(command, arguments, "--json")
    assert (status, set(json.loads(out))) == (0, keys)
    assert all(f"`{key}`" in MORE_JSON_KEYS[command] for key in keys - set(JSON_KEYS[command]))


async def test_no_color_leaves_no_colour_on_a_terminal(ground: Ground) -> None:
    arguments = ("status", "--config", str(ground.here.configuration), "--url", ground.here.url)
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]")
    assert colour.search(await on_terminal(*arguments))
    assert not colour.search(await on_terminal(*arguments, environ={"NO_COLOR": "1"}))
    assert "\x1b" not in forked(*arguments).out
