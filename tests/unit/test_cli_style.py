"""Every command follows the style sheet, `docs/reference/cli-style.md`."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, get_args, get_origin

import pytest
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from sfn.cli import options
from sfn.cli.main import app
from tests.pages import examples_of
from tests.pages.json_keys import JSON_KEYS

DOCS: Final = Path(__file__).parents[2] / "docs" / "reference"

VARYING_HELP: Final[Mapping[str, str]] = {
    "--all": r"(Check|Show|All)\b",
    "--catalog": r"The catalog; required if several |Only this catalog(; repeatable)?\.$|A name for the catalog\.$",
    "--deep": r"Also check ",
    "--exit-code": r"End with 1 if ",
    "--force": r".* even if ",
    "--limit": r"The most ",
    "--sender": r"The configured sender; |Only undecodable requests of this sender\.$",
    "--table": r"The table, |Only dead letters of this table\.$",
    "--timeout": r"The longest time to wait, such as ",
    "--token-file": r"A file with ",
    "--wait": r"Wait for the ",
}
"""The pattern of the help text of options that name the object of their command."""
SHORT_FORMS: Final = {"-h": "--help", "-y": "--yes"}
WITHOUT_RESULT: Final = {"init", "serve", "demo", "demo-catalog", "facade", "healthcheck"}
METAVAR: Final = re.compile(r"[A-Z][A-Z_]*([.=|:][A-Z_]+)*(,…)?|[a-z-]+(\|[a-z-]+)+")
DURATION: Final = "DURATION"


def walk(command: TyperCommand | TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, TyperCommand]]:
    """Yield each command that is no group, by its path."""
    if not isinstance(command, TyperGroup):
        yield " ".join(path), command
        return
    for name, below in command.commands.items():
        assert isinstance(below, (TyperCommand, TyperGroup))
        yield from walk(below, (*path, name))


def tree(application: typer.Typer = app) -> TyperGroup:
    found = typer.main.get_command(application)
    assert isinstance(found, TyperGroup)
    return found


def option_list(command: TyperCommand) -> list[TyperOption]:
    return [one for one in command.params if isinstance(one, TyperOption) and not one.hidden]


def value_type(option: TyperOption) -> Any:  # noqa: ANN401 - a type's annotation
    """Return the type of one value."""
    return _plain(option.type_descriptor.annotation)


def _plain(annotation: Any) -> Any:  # noqa: ANN401 - a type's annotation
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if isinstance(annotation, UnionType) or get_origin(annotation) in {UnionType, list}:
        return _plain(next(one for one in get_args(annotation) if one is not type(None)))
    return annotation


def parser(option: TyperOption) -> object:
    return option.type_descriptor.parameter_info.parser


# ── The rules: each yields what violates it


def names(root: TyperGroup) -> Iterator[str]:
    for path, command in walk(root):
        if re.fullmatch(r"[a-z]+(-[a-z]+)*( [a-z]+(-[a-z]+)*)?", path) is None:
            yield f"{path}: lower case and hyphens"
        for option in option_list(command):
            for name in (*option.opts, *option.secondary_opts):
                if name.startswith("--") and re.fullmatch(r"--[a-z]+(-[a-z]+)*", name) is None:
                    yield f"{path} {name}: lower case and hyphens"
                if not name.startswith("--") and SHORT_FORMS.get(name) not in option.opts:
                    yield f"{path} {name}: no short form"
            for off in option.secondary_opts:
                if off.removeprefix("--no-") != option.opts[0].removeprefix("--"):
                    yield f"{path} {off}: --no- and the option's name"


def one_meaning(root: TyperGroup) -> Iterator[str]:
    seen: defaultdict[str, dict[object, str]] = defaultdict(dict)
    for path, command in walk(root):
        for option in option_list(command):
            name = option.opts[0]
            pattern = VARYING_HELP.get(name)
            if pattern is not None and re.match(pattern, option.help or "") is None:
                yield f"{path} {name}: the help text begins otherwise: {option.help}"
            text = option.help if pattern is None else None
            form = (option.metavar, text, value_type(option), parser(option), *option.opts, *option.secondary_opts)
            seen[name].setdefault(form, path)
    for name, forms in seen.items():
        if len(forms) > 1:
            yield f"{name} differs in: {', '.join(forms.values())}"


def metavars(root: TyperGroup) -> Iterator[str]:
    for path, command in walk(root):
        for one in command.params:
            assert isinstance(one, (TyperArgument, TyperOption))
            if isinstance(one, TyperOption) and (one.is_flag or one.hidden):
                continue
            if METAVAR.fullmatch(one.metavar or "") is None:
                yield f"{path} {one.name}: metavar {one.metavar}"


def durations(root: TyperGroup) -> Iterator[str]:
    for path, command in walk(root):
        for option in option_list(command):
            is_duration = (option.metavar == DURATION, value_type(option) is timedelta)
            if any(is_duration) and (not all(is_duration) or parser(option) is not options.parse_duration):
                yield f"{path} {option.opts[0]}: DURATION, timedelta and options.parse_duration"
            if option.metavar == "KEY=VALUE" and not option.multiple:
                yield f"{path} {option.opts[0]}: repeatable"
            if option.multiple and "repeatable" not in (option.help or ""):
                yield f"{path} {option.opts[0]}: the help text says repeatable"


def help_texts(root: TyperGroup) -> Iterator[str]:
    for path, command in walk(root):
        first, _, _ = (command.help or "").partition("\n")
        if re.match(r"[A-Z][a-z]+ .*[.:]", first) is None or re.match(r"[A-Z][a-z]+s ", first):
            yield f"{path}: the first line is an imperative sentence: {first}"
        if "exit code" in (command.help or "").lower():
            yield f"{path}: say `Ends with 1`"
        for one in command.params:
            assert isinstance(one, (TyperArgument, TyperOption))
            is_hidden = isinstance(one, TyperOption) and one.hidden
            if not is_hidden and re.fullmatch(r"[A-Z].+\.", one.help or "", re.DOTALL) is None:
                yield f"{path} {one.name}: a text with a capital and a full stop: {one.help}"


def help_option(root: TyperGroup) -> Iterator[str]:
    for path in ("", *(path for path, _ in walk(root))):
        command, context = descend(root, path.split())
        if set(command.get_help_option_names(context)) != {"-h", "--help"}:
            yield f"{path}: -h and --help"


def json_output(root: TyperGroup) -> Iterator[str]:
    for path, command in walk(root):
        has_json = any(option.opts == ["--json"] for option in option_list(command))
        if has_json is (path in WITHOUT_RESULT):
            yield f"{path}: --json for results, and only for results"
        if has_json is not (path in JSON_KEYS):
            yield f"{path}: tests/pages/json_keys.py"


def documented(root: TyperGroup) -> Iterator[str]:
    headings = set(re.findall(r"^## `sfn (.+)`$", (DOCS / "cli.md").read_text(), re.MULTILINE))
    for path, _ in walk(root):
        if path not in headings:
            yield f"{path}: docs/reference/cli.md"


def examples(root: TyperGroup) -> Iterator[str]:
    for path, command in walk(root):
        shown = examples_of(command)
        if not 1 <= len(shown) <= 3:
            yield f"{path}: one to three examples"
        for example in shown:
            words = shlex.split(example)
            found, context = descend(root, path.split())
            if words[: len(path.split()) + 1] != ["sfn", *path.split()]:
                yield f"{path}: an example of another command: {example}"
                continue
            try:
                found.make_context(path, words[len(path.split()) + 1 :], parent=context.parent)
            except Exception as error:  # noqa: BLE001 - typer has several bases of its errors
                yield f"{path}: {example}: {error}"


def descend(root: TyperGroup, path: list[str]) -> tuple[TyperCommand | TyperGroup, typer.Context]:
    """Return a command and its context."""
    command: TyperCommand | TyperGroup = root
    context = typer.Context(root, info_name="sfn", **root.context_settings)
    for name in path:
        assert isinstance(command, TyperGroup)
        below = command.commands[name]
        assert isinstance(below, (TyperCommand, TyperGroup))
        command, context = below, typer.Context(below, info_name=name, parent=context, **below.context_settings)
    return command, context


RULES: Final = (*(names, one_meaning, metavars, durations, help_texts, help_option, json_output, documented, examples),)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_command_follows_the_rule(rule: Any) -> None:  # noqa: ANN401 - a function above
    assert list(rule(tree())) == []


def test_each_option_of_the_sheet_exists() -> None:
    table = (DOCS / "cli-style.md").read_text().partition("| option | meaning")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(--[a-z-]+)", row)}
    known = {
        name
        for _, command in walk(tree())
        for option in option_list(command)
        for name in (*option.opts, *option.secondary_opts)
    }
    assert listed - known == set()
    assert set(VARYING_HELP) - listed == set()


def broken() -> TyperGroup:
    """Return a command line that violates every rule."""
    bad = typer.Typer()

    @bad.command("Take_Over", epilog=options.examples("sfn elsewhere"))
    def _(
        limit: Annotated[int, typer.Option("--max_rows", "-m", help="how many")] = 1,
        wait: Annotated[
            int, typer.Option("--timeout", metavar="SECONDS", help="The longest time to wait, such as 5.")
        ] = 1,
        age: Annotated[int, typer.Option("--age", metavar="DURATION", help="An age.")] = 1,
        key: Annotated[list[str] | None, typer.Option("--key", metavar="NAME", help="A key.")] = None,
    ) -> None:
        """Takes over. The exit code is 1."""

    @bad.command("wait", epilog=options.examples("sfn wait --timeout never"))
    def _(
        timeout: options.WaitTimeout = None, *, quiet: Annotated[bool, typer.Option("--quiet/--loud", help="X.")] = True
    ) -> None:
        """Wait for it."""

    return tree(bad)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_violation_is_found(rule: Any) -> None:  # noqa: ANN401 - a function above
    assert list(rule(broken()))


def test_violations_name_the_command_and_the_option() -> None:
    found = [text for rule in RULES for text in rule(broken())]
    for part in (
        "Take_Over: lower case and hyphens",
        "Take_Over --max_rows: lower case and hyphens",
        "Take_Over -m: no short form",
        "wait --loud: --no- and the option's name",
        "--timeout differs in: Take_Over, wait",
        "Take_Over limit: metavar None",
        "Take_Over --age: DURATION, timedelta and options.parse_duration",
        "Take_Over --key: the help text says repeatable",
        "Take_Over limit: a text with a capital and a full stop: how many",
        "Take_Over: say `Ends with 1`",
        "wait: --json for results, and only for results",
        "wait: docs/reference/cli.md",
        "Take_Over: an example of another command: sfn elsewhere",
        "wait: -h and --help",
    ):
        assert part in found, "\n".join(found)
    assert any(text.startswith("wait: sfn wait --timeout never: ") for text in found)
