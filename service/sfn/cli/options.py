"""The options that several commands have, and what a shell completes them by."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from uuid import uuid4

import typer

from sfn.clock import SystemClock
from sfn.domain.identifiers import decode_identifier
from sfn.errors import SfnError

if TYPE_CHECKING:
    from sfn.http.signature import SignatureScheme

# ── options: The options that several commands have

_SERVICE: Final = "Which service"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The options of a command that talks to the service; each None where it was not given."""

    config: Path | None = None
    url: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None


def complete_catalog(context: typer.Context, incomplete: str) -> list[str]:
    """The catalogs of the configuration that the command line names; none where that can't be read."""
    try:
        tables = tomllib.loads(Path(context.params["config"]).read_text("utf-8"))
        return [name for name in tables["catalogs"] if name.startswith(incomplete)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def complete_reason(incomplete: str) -> list[str]:
    """The reasons why something is a dead letter."""
    return [reason for reason in _reasons() if reason.startswith(incomplete)]


def _parse_reason(text: str) -> str:
    if text not in _reasons():
        raise typer.BadParameter(f"expected one of {', '.join(_reasons())}, found {text!r}")
    return text


def _reasons() -> list[str]:
    from sfn.domain.jobs import DeadLetterReason

    return [reason.value for reason in DeadLetterReason]


def parse_age(text: str) -> timedelta:
    """A stretch of time that was typed, such as `5m`."""
    from sfn.settings.types import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected {error}, found {text!r}") from None


def parse_pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """What was given as `KEY=VALUE`, each of them by itself."""
    found = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"expected KEY=VALUE, found {text!r}", param_hint=option)
        found[key] = value
    return found


Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="SFN_CONFIG",
        help="The service's TOML file; without it the environment and the defaults.",
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
        help="What it does, of receiver, worker, gateway, facade and admin; others may share its inbox in PostgreSQL.",
    ),
]
Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where it listens, instead of what the configuration says.",
        show_default=False,
        rich_help_panel=_SERVICE,
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with the bearer token, of which the first line counts, instead of the configuration's.",
        show_default=False,
        rich_help_panel=_SERVICE,
    ),
]
CaFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="Certificates (PEM) to trust instead of the system's.",
        show_default=False,
        rich_help_panel=_SERVICE,
    ),
]
ReportOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--report-option",
        metavar="KEY=VALUE",
        help="How PyIceberg opens the report, such as s3.endpoint=…; may be repeated.",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Catalog: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Which catalog; needed where there are several.",
        show_default=False,
        autocompletion=complete_catalog,
    ),
]
CatalogArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="CATALOG",
        help="Which catalog, by its name in the configuration.",
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
        help="Given up for that reason, such as held-drop.",
        show_default=False,
        autocompletion=complete_reason,
    ),
]
WaitTimeout: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--timeout",
        parser=parse_age,
        metavar="TIME",
        help="With --wait: how long at most, such as 5m; else 60s, of a drop or rename 3m.",
        show_default=False,
    ),
]
OlderThan: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--older-than", parser=parse_age, metavar="AGE", help="Opened earlier, such as 1h.", show_default=False
    ),
]
NewerThan: TypeAlias = Annotated[
    timedelta | None,
    typer.Option("--newer-than", parser=parse_age, metavar="AGE", help="Opened since, such as 1h.", show_default=False),
]


# ── tables: Tables as people name them


def parse_identifier(text: str, hint: str) -> tuple[str, ...]:
    """Levels and name of a dotted identifier, whose parts may be percent-encoded: `a%2Eb.c` is the table c of `a.b`.

    Args:
        hint: which argument or option it is, for the message.

    Raises:
        BadParameter: a part is empty, or no UTF-8.
    """
    try:
        return decode_identifier(text)
    except ValueError:
        expected = "an identifier such as sales.orders, without empty parts; a dot in a part is %2E"
    raise typer.BadParameter(f"{expected}: {text!r}", param_hint=hint)


def parse_table_name(text: str, hint: str = "NS.TABLE") -> tuple[tuple[str, ...], str]:
    """The namespace's levels and the name.

    Raises:
        BadParameter: as of `identifier`, or there is no namespace.
    """
    *namespace, name = parse_identifier(text, hint)
    if not namespace:
        raise typer.BadParameter(f"a namespace and a name, such as sales.orders: {text!r}", param_hint=hint)
    return tuple(namespace), name


# ── signing: What a command signs its events with


@dataclass(frozen=True, slots=True)
class EventSigner:
    """A sender's way to sign.

    Attributes:
        scheme: how.
        secret: what keys the signature.
    """

    scheme: SignatureScheme
    secret: bytes = field(repr=False)

    def headers(self, body: bytes) -> dict[str, str]:
        """The headers that sign a message of now, of an id of its own."""
        from sfn.http.signature import sign

        return sign(self.scheme, self.secret, body, f"msg_{uuid4().hex}", SystemClock().now())


# ── exits: How a command ends

FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 and the number of SIGINT, as shells have it."""


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn an error of the block into its message and its exit code."""
    try:
        yield
    except SfnError as error:
        from sfn.settings.sources import ConfigurationError

        problems = error.problems if isinstance(error, ConfigurationError) else (error,)
        for problem in problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(WRONG_USAGE if isinstance(error, ConfigurationError) else FAILED) from None
