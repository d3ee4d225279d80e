"""Who may send events and who may operate, and whether their tokens are to be had."""

from __future__ import annotations

from collections.abc import Iterator

from sfn.cli.checks.findings import Finding, doubtful, fine, wrong
from sfn.errors import Broken
from sfn.receiver.tokens import TokenFile
from sfn.settings import Settings


def parties(settings: Settings) -> Iterator[Finding]:
    """Each sender, and the operators."""
    if not settings.senders:
        remedy = 'configure one: [senders.NAME] secrets = { main = "…" }'
        yield doubtful("senders", "none: everybody on this machine may send events", remedy)
    for name, sender in settings.senders.items():
        where = f"senders.{name}"
        try:
            count = len(sender.secrets)
            if sender.secrets_file is not None:
                count += len(TokenFile(sender.secrets_file).tokens())
        except Broken as error:
            yield wrong(where, error)
        else:
            speaks = ", ".join(sorted(set(settings.catalogs_of(name).values())))
            yield fine(where, f"{count} valid {'token' if count == 1 else 'tokens'}, speaks for {speaks}")
    yield _operators(settings)


def _operators(settings: Settings) -> Finding:
    admin = settings.admin
    if admin.token_file is not None:
        try:
            TokenFile(admin.token_file)
        except Broken as error:
            return wrong("admin.token_file", error)
    elif admin.token is None:
        remedy = "set admin.token or admin.token_file"
        return doubtful("admin", "no token: `sfn status` and all that operators do will not work", remedy)
    return fine("admin", "there is a token")
