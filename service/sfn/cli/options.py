"""Options, identifiers and exit codes that several commands share, with shell completion."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from uuid import uuid4

import typer

from sfn.clock import SystemClock
from sfn.domain.identifiers import decode_identifier, encode_identifier
from sfn.errors import SfnError

if TYPE_CHECKING:
    from sfn.http.signature import SignatureScheme

_SERVICE: Final = "Service"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The options of a command that talks to the service; None for an option that was not given."""

    config: Path | None = None
    url: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None


def complete_catalog(context: typer.Context, incomplete: str) -> list[str]:
    """Return the catalogs of the configuration that the command would read, or none if it cannot be read."""
    from sfn.settings.sources import find_file

    try:
        tables = tomllib.loads((find_file(context.params["config"]) or Path()).read_text("utf-8"))
        return [name for name in tables["catalogs"] if name.startswith(incomplete)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def complete_reason(incomplete: str) -> list[str]:
    """Return the reasons of dead letters that begin with a text."""
    return [reason for reason in _reasons() if reason.startswith(incomplete)]


def _parse_reason(text: str) -> str:
    if text not in _reasons():
        raise typer.BadParameter(f"expected one of {', '.join(_reasons())}, found {text!r}")
    return text


def _reasons() -> list[str]:
    from sfn.domain.jobs import DeadLetterReason

    return [reason.value for reason in DeadLetterReason]


def parse_duration(text: str) -> timedelta:
    """Return the duration that a text such as `5m` gives."""
    from sfn.settings import types

    try:
        return types.parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected {error}, found {text!r}") from None


def parse_size(text: str) -> int:
    """Return the number of bytes that a text such as `64MiB` gives."""
    from sfn.settings import types

    try:
        return types.parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected {error}, found {text!r}") from None


def parse_storage_options(given: Sequence[str] | None) -> dict[str, Any]:
    """Return the options of a store's driver that `--storage-option` has; a later text overrides an earlier one.

    A value is JSON if it parses as JSON, such as `true` or `5`, and otherwise text.

    Raises:
        BadParameter: a text is neither `KEY=VALUE` nor `@FILE` with a JSON object.
    """
    return _parse_pairs("--storage-option", given, _json_or_text)


def parse_report_options(given: Sequence[str] | None) -> dict[str, str]:
    """Return the PyIceberg properties that `--report-option` has; see `parse_storage_options`. Values are text."""
    found = _parse_pairs("--report-option", given, str)
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()}


def _parse_pairs(option: str, given: Sequence[str] | None, parse: Callable[[str], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given or ():
        if text.startswith("@"):
            found |= _read_object(option, text.removeprefix("@"))
            continue
        key, equals, value = text.partition("=")
        if not key or not equals:
            # The text may be a secret, so the message does not repeat it.
            raise typer.BadParameter("expected KEY=VALUE, or @FILE with a JSON object", param_hint=option)
        found[key] = parse(value)
    return found


def _read_object(option: str, file: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(file).read_bytes())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"expected a file with a JSON object: {error}", param_hint=option) from None
    if not isinstance(found, dict):
        message = f"expected a file with a JSON object, found a {type(found).__name__}: {file}"
        raise typer.BadParameter(message, param_hint=option)
    return found


def _json_or_text(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except ValueError:
        return text


Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="SFN_CONFIG",
        help="The service's TOML file; default: ./sfn.toml or /etc/sfn/sfn.toml, if one exists.",
        show_default=False,
        rich_help_panel=_SERVICE,
    ),
]
Roles: TypeAlias = Annotated[
    str,
    typer.Option(
        "--roles",
        metavar="ROLE,…",
        envvar="SFN_ROLES",
        help="The roles of the process: receiver, worker, gateway, facade, admin. Other processes with the same inbox "
        "in PostgreSQL can have the rest.",
    ),
]
Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The service's base URL, instead of the address in the configuration.",
        show_default=False,
        rich_help_panel=_SERVICE,
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with a bearer token in its first line, instead of the token in the configuration.",
        show_default=False,
        rich_help_panel=_SERVICE,
    ),
]
CaFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="Certificate authorities (PEM) to trust, instead of the system's.",
        show_default=False,
        rich_help_panel=_SERVICE,
    ),
]
ReportOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--report-option",
        metavar="KEY=VALUE",
        help="A PyIceberg property to open the report with, such as s3.endpoint=…, or @FILE with a JSON object of "
        "properties; repeatable.",
        show_default=False,
    ),
]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An option for fsspec's driver of the store, such as anon=true, or @FILE with a JSON object of options; "
        "repeatable.",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Catalog: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="The catalog; required if several are configured.",
        show_default=False,
        autocompletion=complete_catalog,
    ),
]
OnlyCatalog: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Only this catalog.",
        show_default=False,
        autocompletion=complete_catalog,
    ),
]
OnlyCatalogs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Only this catalog; repeatable.",
        show_default=False,
        autocompletion=complete_catalog,
    ),
]
Sender: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--sender", metavar="NAME", help="The configured sender; default: any of the catalog.", show_default=False
    ),
]
CatalogArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="CATALOG",
        help="The catalog's name in the configuration.",
        show_default=False,
        autocompletion=complete_catalog,
    ),
]
Reason: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--reason",
        parser=_parse_reason,
        metavar="REASON",
        help="Only dead letters with this reason, such as held-drop.",
        show_default=False,
        autocompletion=complete_reason,
    ),
]
WaitTimeout: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--timeout",
        parser=parse_duration,
        metavar="DURATION",
        help="The longest time to wait, such as 5m. Default: 60s; for a drop or rename 3m.",
        show_default=False,
    ),
]
OlderThan: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="DURATION",
        help="Only dead letters older than this, such as 1h.",
        show_default=False,
    ),
]
NewerThan: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--newer-than",
        parser=parse_duration,
        metavar="DURATION",
        help="Only dead letters newer than this, such as 1h.",
        show_default=False,
    ),
]


def examples(*commands: str) -> str:
    """Return the end of a command's help: examples of its use, as Markdown."""
    return "\n\n".join(("Examples:", *(f"- `{command}`" for command in commands)))


def parse_identifier(text: str, hint: str) -> tuple[str, ...]:
    """Return the levels and the name of a dotted identifier.

    Parts may be percent-encoded: `a%2Eb.c` is the table `c` in the namespace `a.b`.

    Args:
        text: the identifier.
        hint: the name of the argument or option, for the message.

    Raises:
        BadParameter: a part is empty, or not UTF-8.
    """
    try:
        return decode_identifier(text)
    except ValueError:
        expected = "an identifier such as sales.orders, without empty parts; a dot in a part is %2E"
    raise typer.BadParameter(f"{expected}: {text!r}", param_hint=hint)


@dataclass(frozen=True, slots=True)
class TypedTable:
    """A table as it was typed.

    Attributes:
        catalog: its catalog, by its prefix or an option; None if neither was given.
        namespace: the levels of its namespace.
        name: its name.
    """

    catalog: str | None
    namespace: tuple[str, ...]
    name: str

    @property
    def identifier(self) -> str:
        """The name as it is typed, without the catalog."""
        return encode_identifier(self.namespace, self.name)


_CATALOG_PREFIX: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63}):(.*)", re.DOTALL)
"""A catalog's name, which has no colon, and the rest. A colon in the first level of a namespace is typed as %3A."""


def split_catalog(text: str) -> tuple[str | None, str]:
    """Return the catalog and the identifier of a name such as `prod:sales.orders`; None without a catalog."""
    prefixed = _CATALOG_PREFIX.fullmatch(text)
    return (prefixed[1], prefixed[2]) if prefixed is not None else (None, text)


def parse_table_name(text: str, hint: str = "TABLE", catalog: str | None = None) -> TypedTable:
    """Return the table that a text such as `sales.orders` or `prod:sales.orders` names.

    Args:
        text: the name, as every command prints it.
        hint: the name of the argument or option, for the message.
        catalog: the catalog that an option names.

    Raises:
        BadParameter: the name is malformed, has no namespace, or has another catalog than the option.
    """
    prefix, rest = split_catalog(text)
    *namespace, name = parse_identifier(rest, hint)
    if not namespace:
        raise typer.BadParameter(f"a namespace and a name, such as sales.orders: {text!r}", param_hint=hint)
    if None not in {prefix, catalog} and prefix != catalog:
        expected = f"a table of the catalog {catalog}, or %3A for a colon in a namespace"
        raise typer.BadParameter(f"{expected}: {text!r}", param_hint=hint)
    return TypedTable(catalog or prefix, tuple(namespace), name)


@dataclass(frozen=True, slots=True)
class EventSigner:
    """A signer of events.

    Attributes:
        scheme: the signature scheme.
        secret: the key of the signature.
    """

    scheme: SignatureScheme
    secret: bytes = field(repr=False)

    def headers(self, body: bytes) -> dict[str, str]:
        """Return headers that sign a message with a new id and the current time."""
        from sfn.http.signature import sign

        return sign(self.scheme, self.secret, body, f"msg_{uuid4().hex}", SystemClock().now())


FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 plus the number of SIGINT, as in shells."""


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print the message of an error in the block, and exit with its code."""
    try:
        yield
    except SfnError as error:
        from sfn.settings.sources import ConfigurationError

        problems = error.problems if isinstance(error, ConfigurationError) else (error,)
        for problem in problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(WRONG_USAGE if isinstance(error, ConfigurationError) else FAILED) from None
