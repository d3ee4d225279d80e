"""`sfn init`: write a first configuration file."""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from sfn.cli.options import FAILED, WRONG_USAGE

_TEMPLATE: Final = """\
# Configuration of sfn. `sfn check` proves it, `sfn serve` runs it, `sfn config show` prints what is in effect.
# An environment variable overrides a key: SFN_LISTENER__PORT=9000 for port in [listener].

[listener]
# With another address other machines reach the service, too: that needs senders with tokens, and TLS in front.
#host = "127.0.0.1"  # in a container "0.0.0.0"
#port = 8085

# The catalog that knows the tables. The name is yours: it appears in commands, metrics and the log.
[catalogs.{catalog}]
uri = {uri}
{warehouse}
# How the service identifies itself: a token, or OAuth2 client credentials "ID:SECRET", in files of their own.
#token_file = "/run/secrets/catalog-token"
#credential_file = "/run/secrets/catalog-credential"
#oauth2_uri = "https://sso.example.org/token"
# Only some tables: * matches within a level, ** across levels.
#include = ["sales.**"]

# Where tables lie. S3, Azure and Google find their keys as their own command lines do.
[stores.lake]
prefix = {prefix}

# Who may send events. The token is new; give it to the catalog's webhook, or to `sfn notify`.
[senders.webhook]
secrets = {{ first = {sender_token} }}

# Who may operate the service, by `sfn status` and the other commands. The token is new.
[admin]
token = {admin_token}
"""


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("sfn.toml"),
    *,
    catalog: Annotated[str, typer.Option("--catalog", metavar="NAME", help="A name for the catalog.")] = "prod",
    uri: Annotated[
        str | None,
        typer.Option(
            "--uri", metavar="URI", help="The catalog's URI, such as http://127.0.0.1:8181.", show_default=False
        ),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse", metavar="NAME", help="The catalog's warehouse, if it has several.", show_default=False
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="PREFIX", help="Where the tables lie, such as s3://bucket/warehouse.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write the file even if it exists.")] = False,
) -> None:
    """Write a commented configuration with new tokens, and say what comes next.

    On a terminal it asks for what is not given. The file has secrets: only its owner may read it.
    """
    from sfn.cli.render import print_error
    from sfn.errors import SfnError
    from sfn.settings.sources import ConfigurationError

    uri = uri or _ask("URI of the Iceberg REST catalog, such as http://127.0.0.1:8181", "--uri")
    prefix = prefix or _ask("where the tables lie, such as s3://bucket/warehouse or /warehouse", "--store")
    text = _TEMPLATE.format(
        catalog=catalog,
        uri=json.dumps(uri),
        warehouse='#warehouse = "…"' if warehouse is None else f"warehouse = {json.dumps(warehouse)}",
        prefix=json.dumps(prefix),
        sender_token=json.dumps(secrets.token_urlsafe(32)),
        admin_token=json.dumps(secrets.token_urlsafe(32)),
    )
    try:
        _write(file, text, force=force)
    except FileExistsError:
        print_error(f"{file}: expected a file that does not exist yet, found one; pass --force to replace it")
        raise typer.Exit(WRONG_USAGE) from None
    except OSError as error:
        print_error(str(SfnError(str(file), expected="a file that can be written", found=error.strerror or "an error")))
        raise typer.Exit(FAILED) from None
    except ConfigurationError as error:
        for problem in error.problems:
            print_error(str(problem))
        raise typer.Exit(WRONG_USAGE) from None
    given = "" if file == Path("sfn.toml") else f" --config {file}"
    typer.echo(f"wrote {file}")
    typer.echo(f"next: sfn check{given}    (is everything reachable?)")
    typer.echo(f"then: sfn serve{given}")


def _ask(what: str, option: str) -> str:
    """Return what the user types; on standard error, because standard output may be a pipe.

    Raises:
        BadParameter: there is no terminal to ask at.
    """
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"pass {option}: there is no terminal to ask for it")
    answer = ""
    while not answer:
        typer.echo(f"{what}: ", err=True, nl=False)
        line = sys.stdin.readline()
        if not line:
            raise typer.Exit(FAILED)
        answer = line.strip()
    return answer


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write a configuration that only its owner may read; a file that exists stays if the new one is wrong.

    Raises:
        ConfigurationError: a value is wrong.
        OSError: the file cannot be written, or exists.
    """
    from sfn.settings import load

    if file.exists() and not force:
        raise FileExistsError
    with TemporaryDirectory(dir=file.parent, prefix=".sfn-init-") as folder:
        new = Path(folder) / file.name
        new.touch(mode=0o600)
        new.write_text(text, "utf-8")
        load(new, {})
        new.replace(file)
