"""`sfn healthcheck`: whether the service answers, for containers; it starts quickly and shows no token."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED

PATIENCE: Final = 5.0
"""Seconds."""


def healthcheck(
    *,
    ready: Annotated[bool, typer.Option("--ready", help="Whether it wants traffic (/readyz), not only lives.")] = False,
    config: options.Config = None,
    url: options.Url = None,
) -> None:
    """End with 0 if the service answers, and with 1 if not: `HEALTHCHECK CMD ["sfn", "healthcheck"]`.

    Certificates are not verified: nothing secret is sent.
    """
    import http.client
    import ssl
    from urllib.parse import urlsplit

    if url is None:
        from sfn.cli.access import url_of
        from sfn.errors import SfnError
        from sfn.settings import load_client

        try:
            url = url_of(load_client(config).listener)
        except SfnError as error:
            # Docker reserves 2.
            typer.echo(str(error), err=True)
            raise typer.Exit(FAILED) from None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise typer.BadParameter("a URL such as http://127.0.0.1:8085", param_hint="--url")
    path = f"{parts.path.rstrip('/')}/{'readyz' if ready else 'livez'}"
    target = f"{parts.scheme}://{parts.netloc}{path}"
    connection: http.client.HTTPConnection
    try:
        if parts.scheme == "https":
            unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection(parts.netloc, timeout=PATIENCE, context=unverified)
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        found = str(error) or type(error).__name__
    else:
        if status == http.HTTPStatus.OK:
            return
        found = f"status {status}"
    typer.echo(f"{target}: expected status 200, found {found}", err=True)
    raise typer.Exit(FAILED)
