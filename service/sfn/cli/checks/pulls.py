"""Sources of events: reached, let in, and whether what is to be fetched is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

from sfn.cli.checks.catalogs import is_local
from sfn.cli.checks.findings import Finding, doubtful, fine, wrong
from sfn.errors import SfnError
from sfn.settings import PullSettings, Settings
from sfn.settings.model import pulled
from sfn.wiring.pulls import build_pull_server


async def pulls(settings: Settings) -> AsyncIterator[Finding]:
    """Each source; nothing is fetched, and nothing made."""
    for name, one in settings.pull.items():
        for finding in _of_settings(name, one, settings):
            yield finding
        try:
            yield fine(f"pull.{name}", await build_pull_server(name, one).proven())
        except SfnError as error:
            yield wrong(error.where, error)


def _of_settings(name: str, pull: PullSettings, settings: Settings) -> Iterator[Finding]:
    # What is in a file `.creds` is shown to nobody: it signs what the server makes up.
    shown = pull.token_file is not None or pull.password_file is not None
    is_here = all(is_local(urlsplit(one).hostname or "") for one in pull.servers)
    if shown and not pull.is_encrypted and not is_here:
        yield doubtful(
            f"pull.{name}.servers", "a secret may be sent without TLS", "use tls:// for each, or set ca_file"
        )
    told = sorted(settings.told.intersection(settings.catalogs_of(pulled(name)).values()))
    if told and pull.stream is None:
        text = f"what is published while nobody fetches it is lost, and nobody can be asked of {', '.join(told)}"
        yield doubtful(f"pull.{name}.stream", text, "have JetStream keep it: set stream and durable")
