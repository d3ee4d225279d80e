"""Sources of events: reached, let in, and whether what is to be fetched is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

from sfn.app.endpoints import build_pull_server
from sfn.cli.checks.catalogs import is_local_host
from sfn.cli.checks.findings import CheckFinding, error_finding, ok_finding, warning_finding
from sfn.errors import SfnError
from sfn.settings.model import Settings, pull_origin_name
from sfn.settings.sections import PullSettings


async def pull_findings(settings: Settings) -> AsyncIterator[CheckFinding]:
    """Each source; nothing is fetched, and nothing made."""
    for name, one in settings.pull.items():
        for finding in _settings_findings(name, one, settings):
            yield finding
        try:
            yield ok_finding(f"pull.{name}", await build_pull_server(name, one).probe())
        except SfnError as error:
            yield error_finding(error.where, error)


def _settings_findings(name: str, pull: PullSettings, settings: Settings) -> Iterator[CheckFinding]:
    # What is in a file `.creds` is shown to nobody: it signs what the server makes up.
    shown = pull.token_file is not None or pull.password_file is not None
    is_here = all(is_local_host(urlsplit(one).hostname or "") for one in pull.servers)
    if shown and not pull.is_encrypted and not is_here:
        yield warning_finding(
            f"pull.{name}.servers", "a secret may be sent without TLS", "use tls:// for each, or set ca_file"
        )
    event_only = sorted(
        settings.event_only_catalogs.intersection(settings.catalogs_of(pull_origin_name(name)).values())
    )
    if event_only and pull.stream is None:
        text = f"what is published while nobody fetches it is lost, and nobody can be asked of {', '.join(event_only)}"
        yield warning_finding(f"pull.{name}.stream", text, "have JetStream keep it: set stream and durable")
